#!/usr/bin/env python3
"""Compare the logits of adapters in both layouts that moesaic writes, in transformers 4 and 5 with PEFT.

For every family an adapter is made with PEFT in transformers 4, whose logits are the reference. `moesaic
convert --adapter-layout` writes it in both layouts; each is loaded onto the model, and its logits are
compared. Run it twice, first in the environment of transformers 4 (see tools/make_sft_goldens.py), with the
same work directory; each run prints a table of relative differences (L2) for its version:

    python tools/compare_adapter_layouts.py --moesaic build/dev/bin/moesaic --work /tmp/layouts

A difference near 1e-6 is rounding; one near that of the last column, the model without an adapter, means
that adapters were lost. With --merge the checkpoints of `moesaic convert --merge` are compared too.
"""

import argparse
import shutil
import subprocess
import warnings
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

from make_model_goldens import load
from make_sft_goldens import ATTENTION, DATA, LATENT, LYING_ACROSS, Case, make_adapter, seed_of
from model_fixtures import V4, V5

ALL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
MIXTRAL = [*ATTENTION, "w1", "w2", "w3"]
GRANITE = {"target_modules": ATTENTION,
           "target_parameters": ["block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"]}
FAMILIES = {
    "qwen3_moe": ("qwen3_moe-v4", {"target_modules": ALL}),
    "qwen3_moe, dense layers": ("qwen3_moe-v4-sparse-step", {"target_modules": ALL}),
    "qwen2_moe, shared experts": ("qwen2_moe-v4", {"target_modules": ALL}),
    "olmoe": ("olmoe-v4", {"target_modules": ALL}),
    "mixtral": ("mixtral-v4-window-sharded", {"target_modules": MIXTRAL}),
    "granitemoe": ("granitemoe-v4", GRANITE),
    "glm4_moe, dense layers": ("glm4_moe-v4", {"target_modules": ALL}),
    "dots1, dense layers": ("dots1-v4-window", {"target_modules": ALL}),
    "deepseek_v3, dense layers": ("deepseek_v3-v4", {"target_modules": [*LATENT, *ALL[-3:]]}),
    "qwen3_next": ("qwen3_next-v4", {"target_modules": [*ALL, "in_proj_qkvz", "in_proj_ba", "out_proj"]}),
    "gpt_oss": ("gpt_oss-v4", {"target_modules": ATTENTION, "target_parameters": LYING_ACROSS}),
}
LAYOUTS = ("transformers4", "transformers5")
TOKENS = 16


@torch.no_grad()
def logits_of(model, ids: torch.Tensor) -> torch.Tensor:
    return model.eval()(ids[None], use_cache=False).logits[0].double()


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def prepare(moesaic: str, name: str, rslora: bool, folder: Path) -> None:
    """The adapter, its conversions and its reference logits; in transformers 4."""
    shutil.rmtree(folder, ignore_errors=True)
    directory, targets = FAMILIES[name]
    case = Case(f"{name} {rslora}", V4, directory, "", {"r": 4, "lora_alpha": 6, "use_rslora": rslora, **targets})
    model = make_adapter(case)
    model.save_pretrained(folder / "peft")
    generator = torch.Generator().manual_seed(seed_of(name))
    ids = torch.randint(3, model.config.vocab_size, (TOKENS,), generator=generator)
    with model.disable_adapter():
        bare = logits_of(model, ids)
    save_file({"ids": ids, "logits": logits_of(model, ids), "bare": bare}, folder / "reference.safetensors")
    convert = [moesaic, "convert", "-m", str(DATA / "models" / directory), "--lora", str(folder / "peft")]
    for layout in LAYOUTS:
        subprocess.run([*convert, "--adapter-layout", layout, "-o", str(folder / layout)], check=True,
                       capture_output=True)
    subprocess.run([*convert, "--merge", "-o", str(folder / "merged")], check=True, capture_output=True)


def compare(name: str, adapter: Path, reference: dict[str, torch.Tensor]) -> str:
    try:
        model = PeftModel.from_pretrained(load(DATA / "models" / FAMILIES[name][0]), adapter)
        return f"{difference(logits_of(model, reference['ids']), reference['logits']):.1e}"
    except Exception as error:  # PEFT's refusals are of many types
        return f"refused: {str(error).splitlines()[0][:60]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moesaic", default="moesaic", help="the program")
    parser.add_argument("--work", type=Path, required=True, help="directory that both runs share")
    parser.add_argument("--merge", action="store_true", help="compare merged checkpoints too")
    args = parser.parse_args()
    version = transformers.__version__
    if version not in (V4, V5):
        parser.error(f"needs transformers {V4} or {V5}, found {version}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    columns = [*LAYOUTS, *(["merged"] if args.merge else []), "no adapter"]
    print(f"transformers {version}\n| Family | " + " | ".join(columns) + " |\n" + "|---" * (1 + len(columns)) + "|")
    for name in FAMILIES:
        for rslora in (False, True):
            folder = args.work / f"{FAMILIES[name][0]}{'-rslora' if rslora else ''}"
            if version == V4:
                prepare(args.moesaic, name, rslora, folder)
            reference = load_file(folder / "reference.safetensors")
            row = [compare(name, folder / layout, reference) for layout in LAYOUTS]
            if args.merge:
                row.append(f"{difference(logits_of(load(folder / 'merged'), reference['ids']), reference['logits']):.1e}")
            row.append(f"{difference(reference['bare'], reference['logits']):.1e}")
            print(f"| {name}{', rsLoRA' if rslora else ''} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
