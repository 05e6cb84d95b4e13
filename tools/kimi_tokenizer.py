#!/usr/bin/env python3
"""Write the tokenizer.json of a Kimi checkpoint, which is released with a tiktoken.model alone.

    pip install tokenizers tiktoken
    python tools/kimi_tokenizer.py DIR                  # reads tiktoken.model and tokenizer_config.json there
    python tools/kimi_tokenizer.py DIR --check FILE     # and compares the ids of its lines with tiktoken's

Lines of tiktoken.model are a token's bytes in base64 and its rank, which is its id. The 258 ids behind them are
special tokens: their names stand in tokenizer_config.json (added_tokens_decoder), others are reserved. A piece of
a text that is a token is that token; else neighbours are joined, those first whose result has the lowest rank.
"""

import argparse
import base64
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models

from tokenizer_forms import KIMI, split_sequence

SPECIAL_TOKENS = 258


def byte_characters() -> dict[int, str]:
    """The characters that byte-level tokenizers write bytes as (those of GPT-2)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def read_ranks(path: Path) -> dict[bytes, int]:
    ranks = {}
    for line in path.read_text(encoding="ascii").splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise ValueError(f"{path}: ranks are not 0 to {len(ranks) - 1}")
    return ranks


def read_special_tokens(directory: Path, first: int) -> dict[str, int]:
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    named = {int(id): token["content"] for id, token in config.get("added_tokens_decoder", {}).items()}
    return {named.get(id, f"<|reserved_token_{id}|>"): id for id in range(first, first + SPECIAL_TOKENS)}


def pairs_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """All pairs of tokens that are a token together, by its rank."""
    pairs = []
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
        pairs += sorted((cut for cut in cuts if cut[0] in ranks and cut[1] in ranks),
                        key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))
    return pairs


def make_tokenizer(ranks: dict[bytes, int], special: dict[str, int]) -> Tokenizer:
    characters = byte_characters()

    def text(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    vocabulary = {text(token): rank for token, rank in ranks.items()}
    merges = [(text(left), text(right)) for left, right in pairs_of(ranks)]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = split_sequence(KIMI)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)
                                  for name in sorted(special, key=special.get)])
    return tokenizer


def check(tokenizer: Tokenizer, ranks: dict[bytes, int], special: dict[str, int], path: Path) -> None:
    import tiktoken

    encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        expected = encoding.encode(line, allowed_special="all")
        if tokenizer.encode(line).ids != expected:
            raise ValueError(f"{path}: other ids for {line!r}")
    print(f"{len(lines)} lines have tiktoken's ids")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", type=Path, help="a text whose lines are compared")
    args = parser.parse_args()
    ranks = read_ranks(args.directory / "tiktoken.model")
    special = read_special_tokens(args.directory, len(ranks))
    tokenizer = make_tokenizer(ranks, special)
    if args.check:
        check(tokenizer, ranks, special, args.check)
    tokenizer.save(str(args.directory / "tokenizer.json"))


if __name__ == "__main__":
    main()
