#!/usr/bin/env python3
"""Run small tasks of lm-evaluation-harness on transformers and on Moesaic, and compare.

Makes four tasks of tests/data/demo-heldout.txt (which of four endings a line has, a word of it,
the perplexity of paragraphs, what the model writes up to a comma) and runs them on
tests/data/demo-model, both in float32. Prints the figures of both, and how many of the texts are
the same; fails if figures differ by more than 1e-4 of their size, or texts at all.

    pip install torch transformers lm_eval accelerate
    python tools/compare_lm_eval.py [--command "mpirun -n 2 moesaic"]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import lm_eval
import torch
from lm_eval.tasks import TaskManager

import lm_eval_moesaic  # noqa: F401  registers the model

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
MODEL = DATA / "demo-model"
LINES = 40
TASKS = {
    "demo_endings": {
        "output_type": "multiple_choice", "doc_to_text": "{{context}}",
        "doc_to_target": "label", "doc_to_choice": "endings",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
    "demo_last_word": {
        "output_type": "loglikelihood", "doc_to_text": "{{context}}",
        "doc_to_target": " {{endings[label].split()[0]}}",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}]},
    "demo_texts": {
        "output_type": "generate_until", "doc_to_text": "{{context}}",
        "doc_to_target": "{{endings[label]}}",
        "generation_kwargs": {"until": [",", "."], "max_gen_toks": 24},
        "metric_list": [{"metric": "exact_match"}]},
    "demo_paragraphs": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{paragraph}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]},
}


def write_tasks(folder: Path) -> None:
    words = (DATA / "demo-heldout.txt").read_text(encoding="utf-8").split()
    pieces = [words[i:i + 24] for i in range(0, len(words) - 24, 24)][:LINES]
    endings = [" ".join(piece[18:]) for piece in pieces]
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
        for i, piece in enumerate(pieces):
            others = [endings[(i + 7 * step) % len(pieces)] for step in (1, 2, 3)]
            label = i % 4
            file.write(json.dumps({
                "context": " ".join(piece[:18]), "label": label,
                "endings": others[:label] + [endings[i]] + others[label:],
                "paragraph": " ".join(words[24 * i:24 * i + 24 * (1 + i)])}) + "\n")
    for name, task in TASKS.items():
        config = {"task": name, "dataset_path": "json", "test_split": "test",
                  "dataset_kwargs": {"data_files": {"test": str(folder / "docs.jsonl")}}, **task}
        (folder / f"{name}.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML


def run(model: str, arguments: dict, folder: Path) -> tuple:
    """Figures by task and metric, and the texts that were generated."""
    output = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=list(TASKS), batch_size=8,
        task_manager=TaskManager(include_path=str(folder)), bootstrap_iters=0)
    figures = {(task, metric.split(",")[0]): value for task in TASKS
               for metric, value in output["results"][task].items()
               if isinstance(value, float) and "stderr" not in metric}
    texts = [sample["resps"][0][0] for sample in output["samples"]["demo_texts"]]
    return figures, texts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", default="moesaic")
    parser.add_argument("--max-length", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder)
        theirs, their_texts = run("hf", {
            "pretrained": str(MODEL), "dtype": "float32", "device": "cpu",
            "max_length": options.max_length}, folder)
        ours, our_texts = run("moesaic", {
            "model": str(MODEL), "command": options.command, "options": "--precision fp32",
            "max_length": options.max_length}, folder)
    print(f"{'task':<18}{'metric':<18}{'transformers':>16}{'moesaic':>16}")
    for (task, metric), value in theirs.items():
        print(f"{task:<18}{metric:<18}{value:>16.6f}{ours[task, metric]:>16.6f}")
    same = sum(one == other for one, other in zip(their_texts, our_texts, strict=True))
    print(f"texts: {same} of {len(their_texts)} are the same")
    off = [key for key, value in theirs.items() if abs(ours[key] - value) > 1e-4 * abs(value)]
    if off or same < len(their_texts):
        sys.exit("they differ")


if __name__ == "__main__":
    main()
