#!/usr/bin/env python3
"""Write small random quantised MoE models and the logits of what they dequantise to.

Every fixture of QUANTIZED in tools/model_fixtures.py becomes a directory in tests/data/models like
those of tools/make_model_goldens.py. Its linear layers are quantised (rounded to nearest) by the
library that is named there (tools/quantized_writers.py). The golden logits are transformers' own,
in float32, of a plain model that holds the library's dequantised weights: transformers reads only
some of these checkpoints itself, and not all of them correctly.

Needs the environment that tools/make_quantized_goldens.py describes.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import make_model_goldens as plain
import quantized_writers as writers
from model_fixtures import QUANTIZED, QuantizedFixture
from quantized_writers import Stored

FP8_BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
             "weight_block_size": [128, 128]}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
FP8_ROW = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group",
         "group_size": 16, "scale_dtype": torch.float8_e4m3fn}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False,
        "checkpoint_format": "gptq", "lm_head": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
       "modules_to_not_convert": ["self_attn", "mlp.gate."]}
MXFP4 = {"quant_method": "mxfp4",
         "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                    "model.embed_tokens", "lm_head"]}
IGNORED = {True: ["lm_head", "re:.*gate$"], False: ["lm_head", "re:.*gate$", "re:.*self_attn.*"]}


def compressed(weight: torch.Tensor, form: str, args: dict) -> Stored:
    return writers.compressed(weight, writers.compressed_args(**args), form)


def quantize(fixture: QuantizedFixture, name: str, weight: torch.Tensor) -> Stored:
    match fixture.form:
        case "fp8-block":
            return writers.fp8_block(weight, (128, 128))
        case "pack-quantized":
            return compressed(weight, fixture.form, INT4)
        case "float-quantized":
            return compressed(weight, fixture.form, FP8_ROW)
        case "nvfp4-pack-quantized":
            return compressed(weight.float(), fixture.form, NVFP4)
        case "gptq":
            # Matrices that read the same input have the same order: it comes from the input.
            inputs = name.rsplit(".", 2)[0] + ("o" if "o_proj" in name or ".w2" in name else "")
            g_idx = writers.shuffled_groups(weight.shape[1], 32, plain.seed_of(inputs))
            return writers.gptq(weight, 32, symmetric=False, g_idx=g_idx)
        case "awq":
            return writers.awq(weight, 32)
        case "mxfp4":
            # Plain, the matrices lie across; blocks do not.
            written = writers.gpt_oss(weight.transpose(1, 2))
            return Stored({f"_{end}": tensor for end, tensor in written.tensors.items()},
                          written.values.transpose(1, 2).contiguous())
    raise ValueError(fixture.form)


def quantization_config(fixture: QuantizedFixture) -> dict:
    configs = {"fp8-block": FP8_BLOCK, "gptq": GPTQ, "awq": AWQ, "mxfp4": MXFP4}
    if fixture.form in configs:
        return configs[fixture.form]
    weights = {"pack-quantized": INT4, "float-quantized": FP8_ROW, "nvfp4-pack-quantized": NVFP4}
    return writers.compressed_config(fixture.form, IGNORED[fixture.attention],
                                     weights[fixture.form])


def is_quantized(fixture: QuantizedFixture, name: str) -> bool:
    if name.endswith("_bias"):
        return False
    of_attention = "_proj.weight" in name or "_proj_with_mqa.weight" in name
    return ".experts." in name or (fixture.attention and of_attention)


def save_models(fixture: QuantizedFixture, out: Path, dequantized: Path) -> None:
    """The quantised checkpoint, and the plain one that it stands for."""
    config = AutoConfig.for_model(fixture.family, **fixture.config)
    model = AutoModelForCausalLM.from_config(config)
    plain.fill(model, fixture.name)
    model.to(torch.bfloat16).save_pretrained(out)
    stored, values = {}, {}
    for name, weight in load_file(out / "model.safetensors").items():
        if not is_quantized(fixture, name):
            stored[name] = values[name] = weight
            continue
        written = quantize(fixture, name, weight)
        values[name] = written.values
        for end, tensor in written.tensors.items():
            stored[f"{name.removesuffix('weight')}{end}"] = tensor
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    saved = json.loads((out / "config.json").read_text(encoding="utf-8"))
    writers.write_config(saved, dequantized / "config.json")
    saved["quantization_config"] = quantization_config(fixture)
    writers.write_config(saved, out / "config.json")
    save_file({name: value.float() for name, value in values.items()},
              dequantized / "model.safetensors", metadata={"format": "pt"})


def write_golden(fixture: QuantizedFixture, out: Path, dequantized: Path) -> dict:
    model = plain.load(dequantized)
    ids = plain.choose_tokens(model, fixture)
    logits = plain.logits_at_once(model, ids)
    save_file({"input_ids": ids, "logits": logits}, out / "golden.safetensors")
    golden = {
        "transformers_version": transformers.__version__,
        "torch_version": torch.__version__.split("+")[0],
        "compute": "float32, eager attention, of the dequantised weights",
        "min_router_gap": float(f"{plain.router_gaps(model, ids[None]).min().item():.3g}"),
        "logits_std": float(f"{logits.std().item():.3g}"),
        "notes": [f"Covers: {fixture.covers}."],
    }
    (out / "golden.json").write_text(json.dumps(golden, indent=2) + "\n", encoding="utf-8")
    return golden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=plain.DEFAULT_OUT)
    parser.add_argument("--only", default="", help="part of the name of the fixtures to make")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for fixture in QUANTIZED:
        if args.only not in fixture.name:
            continue
        directory = args.out / fixture.name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as temporary:
            save_models(fixture, directory, Path(temporary))
            golden = write_golden(fixture, directory, Path(temporary))
        for path in directory.iterdir():
            path.chmod(0o644)
        print(f"{fixture.name}: router gap {golden['min_router_gap']}, logits std "
              f"{golden['logits_std']}")
    plain.write_readme(args.out)


if __name__ == "__main__":
    main()
