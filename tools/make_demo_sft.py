"""Writes tests/data/demo-sft.jsonl: conversations in which a user gives the beginning of a verse of
tests/data/demo-heldout.txt and the assistant goes on. The demo model has seen neither the text nor a
conversation, so that fine-tuning on them shows.

usage: python tools/make_demo_sft.py
"""

import json
import pathlib
import re

DATA = pathlib.Path(__file__).parent.parent / "tests" / "data"


def split(verse):
    """The verse at the sign nearest to its middle, or None if it has none to be split at."""
    places = [match.end() for match in re.finditer(r"[,;:] ", verse)]
    places = [place for place in places if 12 <= place <= len(verse) - 12]
    if not places:
        return None
    middle = min(places, key=lambda place: abs(place - len(verse) / 2))
    return verse[:middle].strip(), verse[middle:].strip()


lines = (DATA / "demo-heldout.txt").read_text().splitlines()
with open(DATA / "demo-sft.jsonl", "w") as out:
    for verse in lines:
        parts = split(verse)
        if parts:
            messages = [{"role": "user", "content": parts[0]}, {"role": "assistant", "content": parts[1]}]
            out.write(json.dumps({"messages": messages}) + "\n")
