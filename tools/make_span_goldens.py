#!/usr/bin/env python3
"""Records which bytes of a text each token stands for, as the `tokenizers` library has it.

    pip install tokenizers==0.23.3
    python tools/make_span_goldens.py       # tests/data/tokenizers/<name>/spans.jsonl

The tokenizers are those that are there (make_tokenizer_goldens.py), the texts those of their
golden.jsonl: a line names the line there and gives begin and end of its tokens one after another.
The library's post-processors are left out: ByteLevel's cuts spaces off its spans.
"""

import json
import pathlib

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
EVERY = 3  # that many lines of golden.jsonl apart
MAX_TOKENS = 150


def byte_positions(text):
    positions = [0]
    for character in text:
        positions.append(positions[-1] + len(character.encode()))
    return positions


def spans(tokenizer, text):
    at = byte_positions(text)
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    return [at[place] for offset in offsets for place in offset]


def write(folder):
    data = json.loads((folder / "tokenizer.json").read_text())
    data["post_processor"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with (folder / "golden.jsonl").open() as lines, (folder / "spans.jsonl").open("w") as out:
        for number, line in enumerate(lines, 1):
            text = json.loads(line).get("text")
            if number % EVERY or not text:
                continue
            found = spans(tokenizer, text)
            if len(found) <= 2 * MAX_TOKENS:
                out.write(json.dumps({"line": number, "spans": found}, separators=(",", ":")) + "\n")


def main():
    for folder in sorted((ROOT / "tests/data/tokenizers").iterdir()):
        write(folder)


if __name__ == "__main__":
    main()
