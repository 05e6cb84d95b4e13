#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_additions.cpp: code points that PCRE2 may not know yet.

The `tokenizers` library matches with Unicode 16 properties, the PCRE2 of Debian 12 with Unicode 14.
For every code point assigned after Unicode 14 the table names an older one with the same general
category, the same UTF-8 length and the same script if there is one (the nearest of them), which
stands in for it while a pattern is matched. Needs Python 3.11, whose `unicodedata` is Unicode 14,
and the package `tokenizers`.
"""

import pathlib
import unicodedata

from tokenizers import Regex, normalizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"
SCRIPTS = "Han Hiragana Katakana Cyrillic Arabic Latin Greek Hangul Thai Devanagari"
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, ALL))


def members(pattern):
    rest = set(normalizers.Replace(Regex(pattern), "").normalize_str(TEXT))
    return [c for c in ALL if chr(c) not in rest]


def classes(names):
    return {c: name for name in names.split() for c in members(rf"\p{{{name}}}")}


def main():
    assert unicodedata.unidata_version == "14.0.0", "run this with Python 3.11"
    old = {c for c in ALL if unicodedata.category(chr(c)) != "Cn"}
    category, script = classes(CATEGORIES), classes(SCRIPTS)

    def kind(c):
        return category[c], len(chr(c).encode()), script.get(c)

    known = {}
    for c in sorted(old & category.keys()):
        known.setdefault(kind(c), []).append(c)
    rows = []
    for c in sorted(category.keys() - old):
        same = known.get(kind(c)) or known[(*kind(c)[:2], None)]
        stand_in = min(same, key=lambda other: abs(other - c))
        if rows and rows[-1][1] == c - 1 and kind(c) == rows[-1][3]:
            rows[-1][1] = c
        else:
            rows.append([c, c, stand_in, kind(c)])
    lines = [f"    {{0x{a:04x}, 0x{b:04x}, 0x{s:04x}}},  // {k[0]}" for a, b, s, k in rows]
    (ROOT / "src/tokenizer/unicode_additions.cpp").write_text(
        "// Written by tools/make_unicode_additions.py; do not edit.\n"
        '#include "src/tokenizer/unicode_additions.h"\n\n'
        "namespace moesaic {\n\nnamespace {\n\n"
        "constexpr UnicodeAddition kAdditions[] = {\n    // clang-format off\n"
        + "\n".join(lines)
        + "\n    // clang-format on\n};\n\n}  // namespace\n\n"
        "std::span<const UnicodeAddition> unicode_additions() noexcept {\n  return kAdditions;\n}\n\n"
        "}  // namespace moesaic\n"
    )


if __name__ == "__main__":
    main()
