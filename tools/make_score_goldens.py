#!/usr/bin/env python3
"""Write the goldens of scoring: perplexities of a text in windows, and log-likelihoods of pairs.

Reads tests/data/demo-model and demo-heldout.txt and writes score-golden.json, all in tests/data.
Windows are cut by the recipe of transformers' documentation, "Perplexity of fixed-length models";
everything is computed by transformers in float32 from the saved bf16 weights:

    pip install torch transformers tokenizers safetensors numpy
    python tools/make_score_goldens.py
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
CASES = [(2048, 1024), (512, 256), (512, 512), (300, 77)]  # context, stride
LISTED = 40  # log-probabilities of tokens on both sides of a window's border
PAIRS = [
    ("In the beginning God created the heaven and the", " earth"),
    ("And he said unto them, ", "Go ye"),
    ("And the LORD said unto", " Moses"),
    ("Verily, verily, I say unto", " you, The servant is not greater than his lord"),
]


def log_probabilities(model, ids):
    """Of every token but the first, given those before it, and its rank (1: the likeliest)."""
    logits = model(ids[None], use_cache=False).logits[0, :-1].double()
    own = logits.gather(1, ids[1:, None])
    ranks = 1 + (logits > own).sum(1)
    return F.log_softmax(logits, dim=-1).gather(1, ids[1:, None])[:, 0], ranks


@torch.no_grad()
def windows_golden(model, ids, context: int, stride: int) -> dict:
    values, ranks, windows, previous_end = [], [], 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + context, len(ids))
        target_length = end - previous_end  # may differ from the stride in the last window
        own, rank = log_probabilities(model, ids[begin:end])
        values.append(own[-target_length:])  # labels are shifted: the first of all has none
        ranks.append(rank[-target_length:])
        windows += 1
        previous_end = end
        if end == len(ids):
            break
    values, ranks = torch.cat(values), torch.cat(ranks)
    around = slice(context - LISTED // 2, context + LISTED // 2)
    return {"context": context, "stride": stride, "windows": windows,
            "predicted_tokens": len(values), "loss": round(-values.mean().item(), 7),
            "perplexity": round(torch.exp(-values.mean()).item(), 5),
            "first_listed": around.start,
            "logprobs": [round(value, 5) for value in values[around].tolist()],
            "ranks": ranks[around].tolist()}


@torch.no_grad()
def pair_golden(model, tokenizer, context: str, continuation: str) -> dict:
    spaces = len(context) - len(context.rstrip())
    whole = tokenizer(context + continuation)["input_ids"]
    first = len(tokenizer(context[:len(context) - spaces])["input_ids"])
    values, ranks = log_probabilities(model, torch.tensor(whole))
    return {"context": context, "continuation": continuation, "tokens": len(whole) - first,
            "log_likelihood": round(values[first - 1:].sum().item(), 5),
            "is_greedy": bool((ranks[first - 1:] == 1).all())}


def main() -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(DATA / "demo-model")
    model = AutoModelForCausalLM.from_pretrained(
        DATA / "demo-model", dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor(tokenizer((DATA / "demo-heldout.txt").read_text(encoding="utf-8"))["input_ids"])
    golden = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "file": "demo-heldout.txt",
        "tokens": len(ids),
        "windows": [windows_golden(model, ids, *case) for case in CASES],
        "pairs": [pair_golden(model, tokenizer, *pair) for pair in PAIRS],
    }
    text = json.dumps(golden, indent=1, ensure_ascii=False)
    (DATA / "score-golden.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
