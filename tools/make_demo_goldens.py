#!/usr/bin/env python3
"""Write the goldens of the demo model: its loss on held-out text and its greedy continuations.

Reads tests/data/demo-model, demo-heldout.txt and demo-prompts.txt and writes demo-golden.json, all
in tests/data. Everything is computed by transformers in float32 from the saved bf16 weights:

    pip install torch==2.9.1 transformers==4.57.3 tokenizers==0.22.2 safetensors numpy
    python tools/make_demo_goldens.py
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
HELD_OUT_TOKENS = 1024
NEW_TOKENS = 32


@torch.no_grad()
def held_out_golden(model, tokenizer) -> dict:
    text = (DATA / "demo-heldout.txt").read_text(encoding="utf-8")
    ids = torch.tensor(tokenizer(text)["input_ids"][:HELD_OUT_TOKENS])
    logits = model(ids[None], use_cache=False).logits[0]
    losses = F.cross_entropy(logits[:-1], ids[1:], reduction="none")
    return {
        "file": "demo-heldout.txt",
        "tokens": ids.numel(),
        "predictions": losses.numel(),
        "mean_cross_entropy": round(losses.double().mean().item(), 6),
        "note": "the first `tokens` tokens of the file as one sequence, nothing added; every token "
                "but the first is predicted",
        "first_ids": ids[:32].tolist(),
    }


@torch.no_grad()
def prompt_golden(model, tokenizer, prompt: str) -> dict:
    """The greedy continuation, whole sequence again at each step; stops early at end of text."""
    ids = tokenizer(prompt)["input_ids"]
    sequence, margins = list(ids), []
    while len(margins) < NEW_TOKENS:
        best = model(torch.tensor([sequence]), use_cache=False).logits[0, -1].topk(2)
        margins.append(round((best.values[0] - best.values[1]).item(), 5))
        sequence.append(best.indices[0].item())
        if sequence[-1] == tokenizer.eos_token_id:
            break
    new = sequence[len(ids):]
    return {"prompt": prompt, "ids": ids, "greedy_ids": new, "greedy_text": tokenizer.decode(new),
            "smallest_margin": min(margins), "margins": margins}


def main() -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(DATA / "demo-model")
    model = AutoModelForCausalLM.from_pretrained(
        DATA / "demo-model", dtype=torch.float32, attn_implementation="eager").eval()
    prompts = (DATA / "demo-prompts.txt").read_text(encoding="utf-8").splitlines()
    golden = {
        "transformers_version": transformers.__version__,
        "compute": "float32, eager attention, from the bf16 weights",
        "held_out": held_out_golden(model, tokenizer),
        "margin_note": "margins: the best logit minus the second best at each greedy step",
        "prompts": [prompt_golden(model, tokenizer, prompt) for prompt in prompts],
    }
    text = json.dumps(golden, indent=1, ensure_ascii=False)
    (DATA / "demo-golden.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
