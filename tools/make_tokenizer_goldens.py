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
import copy
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
DEEPSEEK_V3 = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
DEEPSEEK_V2 = [
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
]
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+" + CONTRACTIONS + r"?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*" + CONTRACTIONS + r"?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ODD_SYNTAX = r"\w+(?:'\w+)?\b|[^\w\s[:punct:]]+|[.,;[!?]]|\h{2}|\s+$|^\s+|[[:punct:]]|\s"

# ---------------------------------------------------------------------------------------------
# Texts

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It's what we'll do, they've said; I'd agree!",
    "HELLO World, CamelCaseWords and snake_case_words, don't, DON'T, can'T, I'M, we'Ve.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. ÄÖÜ äöü ß ẞ",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L’été à Genève.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué? ¡Sí! Ñandú.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Pchnąć w tę łódź jeża lub ośm skrzyń fig.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Καλημέρα κόσμε! ΣΊΣΥΦΟΣ σίσυφος",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир! Її є ґанок.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. مَرْحَبًا بِالعَالَم ١٢٣٤٥ ۴۵۶",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם עוֹלָם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। नमस्ते १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน สวัสดีชาวโลก ๑๒๓",
    "天地玄黃，宇宙洪荒。我能吞下玻璃而不伤身体。你好，世界！二〇二六年",
    "いろはにほへと ちりぬるを。私はガラスを食べられます。カタカナ、ﾊﾝｶｸ、ー、々。東京都",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 안녕하세요 ㅋㅋㅋ",
    "👋🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ 😀😃😄 🤷🏿‍♀️ 1️⃣ ✌🏻 🫠 🧑🏾‍💻",
    "e\u0301 a\u0308 o\u0302\u0323 q\u0307\u0323 \u1e9b\u0323 한 \u1112\u1161\u11ab ﬁ ﬀ ② ㍿ Å Å Ω ²",
    "x = 3.14159 * 10**-7; y = 1,234,567.89; 0xDEADBEEF; 1e10; ½ ⅷ ① ௧௨ ٣ 12345678901234567890",
    "def f(a, b=None):\n    \"\"\"doc\"\"\"\n    return {'a': a[0], **b} if a != b else [i for i in (1, 2)]\n",
    "#include <cstdio>\r\nint main() {\r\n\tstd::printf(\"%d\\n\", 42);\r\n\treturn 0;\r\n}\r\n",
    "<div class=\"a b\">&nbsp;&lt;tag/&gt;</div> https://example.org/a_b?c=d&e=%20f#g user@example.org",
    "spaces:  two   three    four     five\ttab\t\ttabs \t mixed\n\n\nlines\r\n\r\n \n  \n end   ",
    "\u00a0nbsp\u2003em\u3000ideographic\u2028line\u2029par\u0085nel\u1680ogham\u180emvs\u200bzws\u202f\u205f\ufeff",
    "\x00\x01\x02\x07\x08\x0b\x0c\x1b\x1f\x7f\x80\x9f controls",
    "--- *** ### ... !!! ??? ;;; ::: ((())) [[[]]] {{{}}} ‘’ “” «» — – … • § ¶ † ‡ € £ ¥ ¢ © ® ™ ± × ÷",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa hahahahahaha",
    "don’t 'S 'ſ 'LL 'RE ſtraße K K İstanbul ı I Ⅷ ǅ ŉ ΐ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈 𒀀 𓀀 𐤀 𠀀𠀁 𪜀 𰀀 𱍐 \U0001e030 \U00010d40 \u0897 \u1c89",
    "U+FFFD \ufffd noncharacters \ufffe \U0010ffff private \ue000 \U000f0000",
]
BROKEN = [
    b"\xff", b"\x80abc", b"abc\xc3", b"\xc3\xa9\xc3(", b"\xe2\x82", b"\xe2\x82\xac\xe2\x28\xa1",
    b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    b"\xe0\x80\x80", b"a\xf8\x88\x80\x80\x80b", b"\xfe\xfe\xff\xff", b"Caf\xe9 latin1 na\xefve",
    b"\xf0\x80\x80\x41", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", b" \xa0 \x85 ",
]
SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<mask>", "<tool>",
    "<tool_call>", "word", "ﬁne", "Éa", " sp ", "<|a|>", "<|a|><|b|>", "<left>", "<right>", "<both>",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCXYZ", " ", "  \t\n\r", "0123456789", ".,;:!?'\"-_()[]{}<>|/\\",
    "éèüßñçøåœ", "абвгдежзиЙЩ", "αβγδΣς", "ابتثجح١٢", "אבגדה", "कखगिीु्१", "กขคงัิ๑", "漢字中文你好",
    "ひらがなカタ", "한국어", "\u0301\u0308\u0323\u0307", "👋🏽👩‍🔬🏳️❤️😀", "'s't're've'll'd'm'S'LL",
    "▁▁ ", "\u00a0\u2003\u3000\u200b\u0085", "ſKİıǅⅷ½②", "𝔘𝟙𠀀𰀀", "\x00\x07\x1b",
]


def random_string(rng, specials):
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.15:
            parts.append(rng.choice(specials))
        elif kind < 0.35:
            sentence = rng.choice(SENTENCES)
            start = rng.randrange(len(sentence))
            parts.append(sentence[start : start + rng.randint(1, 20)])
        elif kind < 0.42:
            code_points = [rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]) for _ in "ab"]
            parts.extend(chr(c) for c in (rng.randrange(m) for m in code_points) if not 0xD800 <= c < 0xE000)
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 8))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def texts(rng, count, specials):
    """Every hand-made text, then `count` random ones; bytes where they are not UTF-8."""
    yield from ["", " ", "  ", "\n", "a", " a", "a ", "▁", "▁a", " ▁ a", "'", "\u0301"]
    yield from SENTENCES
    yield from BROKEN
    for special in specials:
        yield from [special, f"a{special}b", f" {special} ", f"x  {special}\n y", special * 2]
    yield "<|im_start|>user\nHello, how are you?<|im_end|>\n<|im_start|>assistant\n"
    yield "word words sword word! (word) word_ wordé éword 1word word"
    yield "x" * 700 + " " + "ab" * 300 + " " + "é" * 200
    yield " " * 300 + "a" + "\n" * 200
    for i in range(count):
        text = random_string(rng, specials)
        if i % 20 == 0:  # broken by a cut and by a stray byte
            data = bytearray(text.encode())
            data.insert(rng.randrange(len(data) + 1), rng.randrange(0x80, 0x100))
            yield bytes(data[: rng.randint(1, len(data))])
        else:
            yield text


# ---------------------------------------------------------------------------------------------
# Tokenizers


def train(tokenizer, vocab_size, **options):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, **options)
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    return tokenizer


def split_sequence(*patterns, before=(), add_prefix_space=False):
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    last = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False)
    return pre_tokenizers.Sequence([*before, *splits, last])


def byte_level(pre_tokenizer, normalizer=None, vocab_size=700, **model_options):
    tokenizer = Tokenizer(models.BPE(**model_options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def special(*contents):
    return [AddedToken(c, special=True, normalized=False) for c in contents]


def qwen2():
    tokenizer = byte_level(split_sequence(QWEN2), normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in ("<tool_call>", "</tool_call>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def olmoe():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (24, 8, 4, 3, 2)])
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))]
    )
    return tokenizer


def gpt2_prefix_space():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True))
    tokenizer.add_special_tokens(special("<|endoftext|>", "<s>"))
    return tokenizer


def granite():
    before = [pre_tokenizers.Digits(individual_digits=True)]
    use_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = byte_level(pre_tokenizers.Sequence([*before, use_regex]))
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return tokenizer


def llama3():
    tokenizer = byte_level(split_sequence(LLAMA3), vocab_size=900)
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # Tokens that no merge makes, as tiktoken vocabularies have.
    vocab = data["model"]["vocab"]
    for token in ("Ġquick", "ĠWenceslao", "hahaha", "ä½łå¥½"):
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    bos = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    template = processors.TemplateProcessing(
        single=f"{bos[0]} $A", pair=f"{bos[0]} $A {bos[0]}:1 $B:1", special_tokens=[bos]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def deepseek(patterns):
    tokenizer = byte_level(split_sequence(*patterns))
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.add_special_tokens(special("<|begin▁of▁sentence|>", "<|end▁of▁sentence|>"))
    tokenizer.add_tokens([AddedToken(c, normalized=True) for c in ("<|User|>", "<think>")])
    bos = ("<|begin▁of▁sentence|>", tokenizer.token_to_id("<|begin▁of▁sentence|>"))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    return tokenizer


def gpt_oss():
    tokenizer = byte_level(split_sequence(O200K))
    tokenizer.add_special_tokens(special("<|start|>", "<|end|>", "<|message|>", "<|channel|>"))
    return tokenizer


def kimi():
    return byte_level(split_sequence(KIMI))


def odd_syntax():
    return byte_level(split_sequence(ODD_SYNTAX))


def byte_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def sentencepiece(fuse_unk=True, fallback=True, vocab_size=900):
    """A byte-fallback model on text with "▁"; special tokens and bytes come first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Training needs words; the finished tokenizer has no pre-tokenizer.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    first = ["<unk>", "<s>", "</s>"] + (byte_tokens() if fallback else [])
    train(tokenizer, vocab_size, special_tokens=first, limit_alphabet=150)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]  # bytes are no added tokens
    data["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def mixtral():
    return sentencepiece()


def metaspace(scheme, split):
    tokenizer = sentencepiece()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split)
    if scheme == "always":
        tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme=scheme)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return tokenizer


def unknowns():
    tokenizer = sentencepiece(fuse_unk=False, fallback=False, vocab_size=400)
    tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip("a", 2, 3)])
    return tokenizer


def partial_bytes():
    """Bytes for some characters only: unknown tokens stand among byte tokens."""
    data = json.loads(sentencepiece(vocab_size=600).to_str())
    vocab = {t: i for t, i in data["model"]["vocab"].items() if t not in ("<0xCE>", "<0xF0>", "<0x9F>")}
    data["model"]["vocab"] = vocab
    data["model"]["fuse_unk"] = False
    return data


def affixes():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("isolated")]
    )
    train(tokenizer, 800, special_tokens=["<unk>"], continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tokenizer.decoder = None
    return tokenizer


def added_tokens():
    tokenizer = byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(True, use_regex=True)]),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex("q+"), "Q")]),
    )
    tokenizer.add_special_tokens(special("<|a|>", "<|a|><|b|>", "<s>", "</s>"))
    tokenizer.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("Éa", normalized=True),
            AddedToken("ﬁne", normalized=True, single_word=True),
            AddedToken(" sp ", normalized=False),
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True, normalized=True),
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<mask>", lstrip=True, special=True, normalized=True),
            AddedToken("foxes", normalized=True),
        ]
    )
    return tokenizer


def splits():
    """Every behavior, with and without invert, and patterns that are plain texts."""
    split = pre_tokenizers.Split
    steps = [
        split("fox", "isolated"),
        split(Regex(r"[0-9]"), "contiguous"),
        split(Regex(r"[aeiou]+"), "merged_with_previous"),
        split(Regex(r"[.,;]"), "merged_with_next"),
        split(Regex(r"[A-Z]"), "isolated", invert=True),
        split(Regex(r"\t+"), "removed"),
        split(Regex(r"x[^y]*y|z*"), "isolated"),
        pre_tokenizers.Digits(False),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    tokenizer = byte_level(pre_tokenizers.Sequence(steps), normalizers.NFD())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Replace("\u0301", ""), normalizers.Strip(left=True, right=False)]
    )
    return tokenizer


def strip_first():
    """Metaspace looks for the beginning of the text, which Strip and Replace can take away."""
    tokenizer = metaspace("first", True)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace("a", ""), normalizers.Replace("b", "cc")]
    )
    return tokenizer


TOKENIZERS = {
    "qwen2": qwen2,
    "olmoe": olmoe,
    "gpt2_prefix_space": gpt2_prefix_space,
    "granite": granite,
    "llama3": llama3,
    "deepseek_v3": lambda: deepseek(DEEPSEEK_V3),
    "deepseek_v2": lambda: deepseek(DEEPSEEK_V2),
    "gpt_oss": gpt_oss,
    "kimi": kimi,
    "odd_syntax": odd_syntax,
    "mixtral": mixtral,
    "metaspace_first": lambda: metaspace("first", False),
    "metaspace_always": lambda: metaspace("always", True),
    "metaspace_never": lambda: metaspace("never", True),
    "unknowns": unknowns,
    "partial_bytes": partial_bytes,
    "affixes": affixes,
    "added_tokens": added_tokens,
    "splits": splits,
    "strip_first": strip_first,
}
MERGES_AS_STRINGS = {"qwen2", "mixtral", "granite"}
# Their normalizers and pre-tokenizers take Unicode tables of several ages in the library (12 for
# NFKC, 17 for Lowercase), so they get texts of older characters only.
OLD_CHARACTERS_ONLY = {"affixes", "added_tokens", "splits"}


def tokenizer_json(name):
    made = TOKENIZERS[name]()
    data = made if isinstance(made, dict) else json.loads(made.to_str())
    if isinstance(made, dict):
        known = made["model"]["vocab"]
        made["model"]["merges"] = [m for m in made["model"]["merges"] if all(t in known for t in (*m, "".join(m)))]
    if name in MERGES_AS_STRINGS:
        data = copy.deepcopy(data)
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


# ---------------------------------------------------------------------------------------------
# Goldens


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
