"""Small tokenizers of every family form (make_tokenizer_goldens.py), made by the `tokenizers` library."""

import copy
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from tokenizer_texts import SENTENCES

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
