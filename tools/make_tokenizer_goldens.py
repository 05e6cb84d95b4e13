#!/usr/bin/env python3
"""Makes small tokenizers of every family form, with what the `tokenizers` library makes of texts.

    pip install tokenizers==0.22.2
    python tools/make_tokenizer_goldens.py                          # tests/data/tokenizers/<name>/
    python tools/make_tokenizer_goldens.py --random 10000 --out DIR # a long check, see below
    python tools/make_tokenizer_goldens.py --file X/tokenizer.json --random 10000 --out DIR

Each folder gets tokenizer.json and golden.jsonl, one case a line: `text`, `ids` (with special
tokens), `plain_ids` (without, where that differs), `text_all` and `text_skip` (the ids decoded with
special tokens and without), `random_ids` and what they decode to. A text that is not UTF-8 stands
as `bytes`, a list of numbers; what is encoded then is the text with errors="replace". The library
orders its vocabularies anew in each training, so every run gives other ids.

To run the test on such a folder of long checks:

    MOESAIC_TOKENIZER_GOLDENS=DIR build/dev/bin/tokenizer_test --gtest_filter='*golden*'
"""

import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import Tokenizer

from tokenizer_forms import OLD_CHARACTERS_ONLY, TOKENIZERS, tokenizer_json
from tokenizer_texts import SPECIALS, texts

ROOT = pathlib.Path(__file__).resolve().parent.parent


def case(tokenizer, text, size, rng):
    line = {}
    if isinstance(text, bytes):
        line["bytes"] = list(text)
        text = text.decode(errors="replace")
    else:
        line["text"] = text
    line["ids"] = tokenizer.encode(text).ids
    plain_ids = tokenizer.encode(text, add_special_tokens=False).ids
    line["plain_ids"] = plain_ids if plain_ids != line["ids"] else None
    line["text_all"] = safe_decode(tokenizer, line["ids"], False)
    line["text_skip"] = safe_decode(tokenizer, line["ids"], True)
    line["random_ids"] = [rng.randrange(size) for _ in range(rng.randint(0, 12))]
    line["random_all"] = safe_decode(tokenizer, line["random_ids"], False)
    line["random_skip"] = safe_decode(tokenizer, line["random_ids"], True)
    return {key: value for key, value in line.items() if value is not None}


def safe_decode(tokenizer, ids, skip):
    try:
        return tokenizer.decode(ids, skip_special_tokens=skip)
    except BaseException as error:  # the library's Strip panics on tokens that are too short
        assert type(error).__name__ == "PanicException", error
        return None


def old_characters(text):
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    old = "".join(c for c in shown if unicodedata.ucd_3_2_0.category(c) != "Cn")
    return text if old == shown else old


def write(folder, text, random_count, seed):
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(text)
    rng = random.Random(seed)
    specials = sorted(set(SPECIALS) | {t.content for t in tokenizer.get_added_tokens_decoder().values()})
    rng.shuffle(specials)
    size = max(tokenizer.get_vocab(True).values()) + 5  # some ids that no token has
    with (folder / "golden.jsonl").open("w") as out:
        for sample in texts(rng, random_count, specials[:14]):
            if folder.name in OLD_CHARACTERS_ONLY:
                sample = old_characters(sample)
            line = case(tokenizer, sample, size, rng)
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/data/tokenizers")
    parser.add_argument("--random", type=int, default=90, help="random texts per tokenizer")
    parser.add_argument("--file", type=pathlib.Path, help="a tokenizer.json to take instead")
    parser.add_argument("--only", help="one of the tokenizers")
    arguments = parser.parse_args()
    if arguments.file:
        write(arguments.out / arguments.file.parent.name, arguments.file.read_text(), arguments.random, 1)
        return
    for seed, name in enumerate(TOKENIZERS):
        if arguments.only in (None, name):
            text = json.dumps(tokenizer_json(name), ensure_ascii=False)
            write(arguments.out / name, text, arguments.random, seed)


if __name__ == "__main__":
    main()
