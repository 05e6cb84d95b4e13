#!/usr/bin/env python3
"""Records what transformers makes of chat templates.

    pip install transformers==5.23.0 jinja2==3.1.6
    python tools/make_chat_goldens.py       # tests/data/jinja/, tests/data/chat/

tests/data/jinja: variables.json, and golden.jsonl with a small template a line (jinja_snippets.py)
and its text and what its generation blocks made, in bytes; no text where Jinja refuses it.

tests/data/chat: conversations.jsonl (chat_conversations.py), and for each dialect, whose templates
are our own in the manner of a family, golden.jsonl with a line a conversation: the text, how many
ids it has and their checksum, and the mask as runs [first token, length]; "mask": null where it
cannot be told, "error" where the template refuses it (its words, if it raised them itself).
Masks are those of return_assistant_tokens_mask where the template has generation blocks, else by the
rule of docs/chat.md from the library's own offsets.
"""

import argparse
import json
import pathlib
import tempfile

from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import chat_conversations
import jinja_snippets

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Whose ids a dialect gets: a folder of tests/data/tokenizers.
DIALECTS = {
    "chatml": "qwen2",
    "deepseek": "deepseek_v3",
    "gemma": "metaspace_first",
    "glm": "odd_syntax",
    "gpt_oss": "gpt_oss",
    "granite": "granite",
    "hermes": "llama3",
    "kimi": "kimi",
    "llama3": "llama3",
    "minimax": "splits",
    "mistral": "mixtral",
    "olmo": "olmoe",
    "qwen3": "qwen2",
    "qwen_coder": "added_tokens",
}


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def byte_span(text, begin, end):
    return [len(text[:begin].encode()), len(text[:end].encode())]


def snippet(source):
    line = {"template": source}
    try:
        compiled = _compile_jinja_template(source)
        text, spans = _render_with_assistant_indices(
            compiled, messages=None, tools=None, documents=None, add_generation_prompt=None, **jinja_snippets.VARIABLES
        )
    except Exception:  # of Jinja, or of Python inside of it
        return line
    if "<generator" in text or " at 0x" in text:  # would differ from run to run
        return None
    line["text"] = text
    if spans:
        line["generated"] = [byte_span(text, *span) for span in spans]
    return line


def write_snippets(folder):
    sources = ["{{ " + text + " }}" for text in jinja_snippets.EXPRESSIONS] + jinja_snippets.TEMPLATES
    write_lines(folder / "golden.jsonl", [line for line in map(snippet, sources) if line])
    (folder / "variables.json").write_text(json.dumps(jinja_snippets.VARIABLES, ensure_ascii=False) + "\n")


# ---------------------------------------------------------------------------------------------
# Conversations


def tokenizer_of(folder, name):
    """The dialect's template with the ids of a tokenizer, without its post-processor (whose spans
    lack spaces)."""
    data = json.loads((ROOT / "tests/data/tokenizers" / name / "tokenizer.json").read_text())
    data["post_processor"] = None
    with tempfile.TemporaryDirectory() as made:
        target = pathlib.Path(made)
        (target / "tokenizer.json").write_text(json.dumps(data))
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (target / "tokenizer_config.json").write_text(json.dumps(config))
        if (folder / "chat_template.jinja").exists():
            (target / "chat_template.jinja").write_text((folder / "chat_template.jinja").read_text())
        return PreTrainedTokenizerFast.from_pretrained(target)


def plain_tokenizer(name):
    """As the file has it: transformers adds the special tokens of the configuration to its own."""
    data = json.loads((ROOT / "tests/data/tokenizers" / name / "tokenizer.json").read_text())
    data["post_processor"] = None
    return Tokenizer.from_str(json.dumps(data))


def apply(tokenizer, chat, **more):
    return tokenizer.apply_chat_template(
        chat["messages"],
        tools=chat.get("tools"),
        add_generation_prompt=more.pop("prompt", chat.get("add_generation_prompt", False)),
        **chat.get("chat_template_kwargs", {}),
        **more,
    )


def turns(tokenizer, chat, whole):
    """Spans of an assistant's turns in characters, or None."""
    spans = []
    for i, message in enumerate(chat["messages"]):
        if message["role"] != "assistant":
            continue
        try:
            before = apply(tokenizer, {**chat, "messages": chat["messages"][:i]}, prompt=True, tokenize=False)
            behind = apply(tokenizer, {**chat, "messages": chat["messages"][: i + 1]}, prompt=False, tokenize=False)
        except Exception:  # the template refuses a part
            return None
        if len(before) > len(behind) or not whole.startswith(before) or not whole.startswith(behind):
            return None
        spans.append((len(before), len(behind)))
    return spans


def generated(tokenizer, chat):
    """Spans of generation blocks in characters."""
    compiled = _compile_jinja_template(tokenizer.chat_template)
    spans = []
    original = compiled.environment.activate_tracker

    def activate(blocks, indices):
        spans.append(indices)
        return original(blocks, indices)

    compiled.environment.activate_tracker = activate
    try:
        apply(tokenizer, chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    finally:
        compiled.environment.activate_tracker = original
    return spans[0]


def runs(mask):
    found = []
    for at, flag in enumerate(mask):
        if flag and at > 0 and mask[at - 1]:
            found[-1][1] += 1
        elif flag:
            found.append([at, 1])
    return found


def checksum(ids):
    total = 0
    for number in ids:
        total = (total * 31 + number) % 2147483647
    return total


def conversation(tokenizer, plain, chat):
    try:
        text = apply(tokenizer, chat, tokenize=False)
    except Exception as error:
        return {"error": str(error) if type(error).__name__ == "TemplateError" else ""}
    encoded = plain.encode(text, add_special_tokens=False)
    line = {"text": text, "ids": [len(encoded.ids), checksum(encoded.ids)]}
    template = tokenizer.chat_template
    has_blocks = isinstance(template, str) and "{% generation %}" in template
    spans = generated(tokenizer, chat) if has_blocks else turns(tokenizer, chat, text)
    line["mask"] = None
    if spans is not None:
        line["mask"] = runs([any(max(b, s) < min(e, t) for s, t in spans) for b, e in encoded.offsets])
    if has_blocks:
        whole = apply(tokenizer, chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        assert whole["input_ids"] != encoded.ids or runs(whole["assistant_masks"]) == line["mask"]
    return line


def write_conversations(folder):
    write_lines(folder / "conversations.jsonl", chat_conversations.CONVERSATIONS)
    (folder / "tokenizers.json").write_text(json.dumps(DIALECTS, indent=1) + "\n")
    for name, ids in DIALECTS.items():
        tokenizer = tokenizer_of(folder / name, ids)
        plain = plain_tokenizer(ids)
        write_lines(folder / name / "golden.jsonl", [conversation(tokenizer, plain, chat) for chat in chat_conversations.CONVERSATIONS])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/data")
    arguments = parser.parse_args()
    write_snippets(arguments.out / "jinja")
    write_conversations(arguments.out / "chat")


if __name__ == "__main__":
    main()
