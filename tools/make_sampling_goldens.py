#!/usr/bin/env python3
"""Writes tests/data/sampling.json: what the logits processors of transformers make of logits.

    tools/make_sampling_goldens.py [OUT.json]          (torch, transformers 4.57)

Processors run in vLLM's order (vllm/v1/sample/sampler.py): bias, repetition, frequency and presence penalty, temperature,
min-p, top-k, top-p. transformers has no frequency and presence penalty: they are vLLM's expressions
(vllm/model_executor/layers/utils.py: apply_penalties). `adjusted` are the logits before the temperature, `probabilities` what
is left at the end; null: removed.
"""

import json
import os
import sys

import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 40
CASES = [
    {},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"frequency_penalty": 0.4},
    {"presence_penalty": 0.6},
    {"frequency_penalty": -0.3, "presence_penalty": -0.2},
    {"logit_bias": {"3": 2.5, "17": -1.75, "39": 0.1}},
    {"min_p": 0.2},
    {"min_p": 0.3, "temperature": 2.5},
    {"top_k": 9, "min_p": 0.15},
    {"top_p": 0.7},
    {"top_k": 12, "top_p": 0.8, "min_p": 0.2, "temperature": 1.7},
    {"min_p": 0.35, "top_p": 0.5},
    {
        "logit_bias": {"0": 1.25, "8": -3.5},
        "repetition_penalty": 1.15,
        "frequency_penalty": 0.25,
        "presence_penalty": 0.35,
        "temperature": 1.3,
        "min_p": 0.1,
        "top_k": 14,
        "top_p": 0.9,
    },
]


def penalize_output(scores, output, options):
    """vLLM's apply_penalties, of one sequence."""
    counts = torch.bincount(output, minlength=VOCAB).to(torch.float32)
    scores = scores - torch.tensor(options.get("frequency_penalty", 0.0)) * counts
    return scores - torch.tensor(options.get("presence_penalty", 0.0)) * (counts > 0)


def adjust(logits, tokens, prompt_tokens, options):
    ids = tokens.unsqueeze(0)
    scores = logits.unsqueeze(0)
    if "logit_bias" in options:
        bias = {(int(token),): value for token, value in options["logit_bias"].items()}
        scores = SequenceBiasLogitsProcessor(bias)(ids, scores)
    if "repetition_penalty" in options:
        scores = RepetitionPenaltyLogitsProcessor(options["repetition_penalty"])(ids, scores)
    return penalize_output(scores[0], tokens[prompt_tokens:], options).unsqueeze(0)


def limit(scores, ids, options):
    warpers = [TemperatureLogitsWarper(options["temperature"])] if "temperature" in options else []
    if "min_p" in options:
        warpers.append(MinPLogitsWarper(options["min_p"]))
    if "top_k" in options:
        warpers.append(TopKLogitsWarper(options["top_k"]))
    if "top_p" in options:
        warpers.append(TopPLogitsWarper(options["top_p"]))
    for warper in warpers:
        scores = warper(ids, scores)
    return scores


def make_case(number, options):
    generator = torch.Generator().manual_seed(number)
    logits = torch.randn(VOCAB, generator=generator) * 1.5
    tokens = torch.randint(0, VOCAB // 2, (18,), generator=generator)
    prompt_tokens = 7
    adjusted = adjust(logits, tokens, prompt_tokens, options)
    limited = limit(adjusted, tokens.unsqueeze(0), options)[0]
    probabilities = torch.softmax(limited, -1)
    return {
        "options": options,
        "tokens": tokens.tolist(),
        "prompt_tokens": prompt_tokens,
        "logits": logits.tolist(),
        "adjusted": adjusted[0].tolist(),
        "probabilities": [p if s > -torch.inf else None for p, s in zip(probabilities.tolist(), limited)],
    }


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../tests/data/sampling.json")
    cases = [make_case(number, options) for number, options in enumerate(CASES)]
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(round_floats(case)) for case in cases) + "\n]\n")


def round_floats(value):
    """float32 values in as few digits as tell them apart."""
    if isinstance(value, dict):
        return {key: round_floats(item) if key != "options" else item for key, item in value.items()}
    if isinstance(value, list):
        return [round_floats(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
