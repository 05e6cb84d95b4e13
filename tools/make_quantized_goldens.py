#!/usr/bin/env python3
"""Write small quantised matrices as the libraries store them, with what they dequantise them to.

Every case becomes a directory in tests/data/quantized, a checkpoint but for its lack of a model:

    config.json              the quantization_config of that library
    model.safetensors        the stored tensors of some matrices
    dequantized.safetensors  the library's own values of each, F32; and "original.<name>", BF16:
                             what was quantised, where a rule of rounding is to be compared

The writers are in tools/quantized_writers.py. Versions that wrote the files, on a CPU:

    pip install torch==2.9.1 transformers==5.23.0 safetensors compressed-tensors==0.20.0 \
        nvidia-modelopt==0.47.0 gptqmodel==7.7.0 autoawq==0.2.9 gguf==0.19.0
    python tools/make_quantized_goldens.py            # all but one
    pip install compressed-tensors==0.15.0.1
    python tools/make_quantized_goldens.py --only int4-order

compressed-tensors 0.15 is the last that knows activation order; it does not dequantise partial
blocks of FP8 or MXFP4, and writes the same bytes otherwise. gptqmodel and autoawq need not be
installed with all that they ask for: PYTHONPATH with their sources is enough.
"""

import argparse
import inspect
import shutil
import zlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import save_file

import quantized_writers as writers
from quantized_writers import Stored

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "quantized"


@dataclass(frozen=True)
class Case:
    name: str
    writer: str  # library that wrote the values
    covers: str
    config: dict  # quantization_config
    matrices: dict[str, tuple[int, ...]]  # name without ".weight" -> shape
    write: Callable[[torch.Tensor], Stored]
    originals: bool = False
    needs: str = ""  # the one version of compressed-tensors that can write it


def random_weight(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """BF16 values with a row of zeros, an outlier, and a row of tiny numbers."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    weight = torch.randn(shape, generator=generator) * 0.05
    weight[..., 1, :] = 0
    weight[..., 2, :] *= 1e-3
    weight[..., 3, 5] = 0.75
    return weight.to(torch.bfloat16)


# ---------------------------------------------------------------------------------------------
# compressed-tensors


def compressed_case(name: str, form: str, covers: str, matrices: dict, *, f32: bool = False,
                    g_idx: torch.Tensor | None = None, needs: str = "", originals: bool = False,
                    **weights) -> Case:
    def write(weight: torch.Tensor) -> Stored:
        args = writers.compressed_args(**weights)
        return writers.compressed(weight.float() if f32 else weight, args, form, g_idx)

    config = writers.compressed_config(form, ["lm_head"], weights)
    return Case("compressed-tensors-" + name, "compressed-tensors", covers, config, matrices, write,
                originals, needs)


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True}


def compressed_cases() -> list[Case]:
    return [
        compressed_case("int4-group32", "pack-quantized", "symmetric, BF16 scales",
                        {"a": (12, 96)}, group_size=32, originals=True, **INT4),
        compressed_case("int4-group256", "pack-quantized", "two kernel groups to a scale",
                        {"a": (4, 512)}, group_size=256, **INT4),
        compressed_case("int4-zeros", "pack-quantized",
                        "zero points, packed along rows that are no multiple of 8; F32 scales",
                        {"a": (20, 64)}, f32=True, group_size=32, **INT4 | {"symmetric": False}),
        compressed_case("int4-row", "pack-quantized", "one scale a row; K no multiple of 8",
                        {"a": (6, 84)}, **INT4 | {"strategy": "channel"}),
        compressed_case("int4-order", "pack-quantized", "activation order (weight_g_idx)",
                        {"a": (6, 192)}, g_idx=writers.shuffled_groups(192, 64), needs="0.15.0.1",
                        group_size=64, actorder="group", **INT4),
        compressed_case("int4-bytes", "int-quantized", "W4AFP8: an integer a byte",
                        {"a": (5, 256)}, group_size=128, **INT4),
        compressed_case("int8-packed", "pack-quantized", "8 bits, one scale a row",
                        {"a": (6, 50)}, **INT4 | {"num_bits": 8, "strategy": "channel"}),
        compressed_case("int8", "int-quantized", "W8A8", {"a": (6, 50)},
                        **INT4 | {"num_bits": 8, "strategy": "channel"}),
        compressed_case("fp8-row", "float-quantized", "one scale a row, F32", {"a": (6, 50)},
                        f32=True, originals=True, strategy="channel", **FP8),
        compressed_case("fp8-matrix", "float-quantized", "one scale", {"a": (6, 50)},
                        strategy="tensor", **FP8),
        compressed_case("fp8-block", "float-quantized",
                        "BF16 scales of blocks of 32, the last ones partial", {"a": (40, 40)},
                        needs="0.20.0", strategy="block", block_structure=[32, 32], **FP8),
        compressed_case("mxfp8", "mxfp8-quantized", "exponents of groups of 32", {"a": (6, 96)},
                        strategy="group", group_size=32, scale_dtype=torch.uint8, needs="0.20.0",
                        **FP8),
        compressed_case("nvfp4", "nvfp4-pack-quantized", "a divisor for the matrix", {"a": (6, 96)},
                        f32=True, num_bits=4, type="float", symmetric=True, strategy="tensor_group",
                        group_size=16, scale_dtype=torch.float8_e4m3fn, originals=True),
        compressed_case("mxfp4", "mxfp4-pack-quantized", "exponents of groups of 32",
                        {"a": (6, 96)}, num_bits=4, type="float", symmetric=True, strategy="group",
                        group_size=32, scale_dtype=torch.uint8, needs="0.20.0"),
    ]


# ---------------------------------------------------------------------------------------------
# The others


def modelopt_case(algorithm: str, preset: str, covers: str, matrices: dict,
                  originals: bool = False) -> Case:
    name = "modelopt-" + algorithm.lower().replace("_", "-")
    return Case(name, "ModelOpt", covers, {"quant_method": "modelopt", "quant_algo": algorithm},
                matrices, lambda weight: writers.modelopt(weight, preset), originals)


def modelopt_cases() -> list[Case]:
    return [
        modelopt_case("FP8", "FP8_DEFAULT_CFG", "one scale, 0-d", {"a": (6, 50)}),
        modelopt_case("FP8_PER_CHANNEL_PER_TOKEN", "FP8_PER_CHANNEL_PER_TOKEN_CFG",
                      "one scale a row, 1-d", {"a": (6, 50)}),
        modelopt_case("fp8_pb_wo", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
                      "scales of blocks of 128, 4-d; 0-d for a single one",
                      {"a": (4, 256), "b": (132, 8), "c": (6, 50)}),
        modelopt_case("MXFP8", "MXFP8_DEFAULT_CFG", "exponents of groups of 32", {"a": (6, 96)},
                      originals=True),
        modelopt_case("NVFP4", "NVFP4_DEFAULT_CFG", "a factor for the matrix", {"a": (6, 96)},
                      originals=True),
        modelopt_case("W4A8_NVFP4_FP8", "W4A8_NVFP4_FP8_CFG", "groups of 32", {"a": (6, 96)}),
        modelopt_case("W4A8_MXFP4_FP8", "W4A8_MXFP4_FP8_CFG", "exponents of groups of 32",
                      {"a": (6, 96)}, originals=True),
        modelopt_case("W4A16_AWQ", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
                      "rows in pairs, two's complement, F32 scales", {"a": (6, 256)}),
    ]


def gptq_case(name: str, covers: str, sym: bool, v2: bool = False, desc_act: bool = False) -> Case:
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": desc_act, "sym": sym,
              "checkpoint_format": "gptq_v2" if v2 else "gptq"}
    g_idx = writers.shuffled_groups(64, 32) if desc_act else None

    def write(weight: torch.Tensor) -> Stored:
        weight = weight.clone()
        weight[8:12] = weight[8:12].abs()  # zero points of 0, which the v1 format borrows for
        return writers.gptq(weight, 32, sym, v2, g_idx)

    return Case("gptq-" + name, "GPTQModel", covers, config, {"a": (32, 64)}, write)


def fp8_config(block: tuple[int, int], **more) -> dict:
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": list(block), **more}


def fused_nvfp4(weight: torch.Tensor) -> Stored:
    """Experts in one tensor, gate and up with a factor each."""
    halves = [[writers.modelopt(half, "NVFP4_DEFAULT_CFG") for half in expert.chunk(2)]
              for expert in weight]

    def stack(name: str) -> torch.Tensor:
        return torch.stack([torch.cat([h.tensors[name].view(torch.uint8) for h in expert])
                            for expert in halves])

    factors = torch.tensor([[h.tensors["weight_scale_2"] for h in expert] for expert in halves])
    return Stored({"": stack("weight"), "weight_scale": stack("weight_scale").view(writers.F8),
                   "weight_scale_2": factors},
                  torch.stack([torch.cat([h.values for h in expert]) for expert in halves]))


def other_cases() -> list[Case]:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
           "version": "gemm", "modules_to_not_convert": None}
    return [
        gptq_case("sym", "symmetric", sym=True),
        gptq_case("zeros", "zero points, of 0 too, stored less 1 (gptq)", sym=False),
        gptq_case("zeros-v2", "zero points as they are (gptq_v2)", sym=False, v2=True),
        gptq_case("order", "zero points and activation order (desc_act)", sym=False, desc_act=True),
        Case("awq", "AutoAWQ", "gemm version", awq, {"a": (32, 64)}, lambda w: writers.awq(w, 32)),
        Case("fp8-block", "DeepSeek's formula, transformers",
             "F32 scales of blocks of 128, the last ones partial", fp8_config((128, 128)),
             {"a": (132, 9), "b": (4, 140), "c": (128, 8)},
             lambda w: writers.fp8_block(w, (128, 128)), originals=True),
        Case("fp8-block-ue8m0", "DeepSeek's formula, transformers",
             "F8_E8M0 scales of blocks of 32", fp8_config((32, 32), scale_fmt="ue8m0"),
             {"a": (40, 40), "b": (32, 32)},
             lambda w: writers.fp8_block(w, (32, 32), ue8m0=True, name="scale")),
        Case("deepseek-v4", "gguf, transformers", "MXFP4 in I8 with F8_E8M0 scales",
             fp8_config((128, 128), scale_fmt="ue8m0", expert_dtype="fp4"), {"a": (6, 96)},
             writers.deepseek_v4),
        Case("gpt-oss", "gguf, transformers", "MXFP4 blocks of two experts",
             {"quant_method": "mxfp4"}, {"experts.gate_up_proj": (2, 8, 64)}, writers.gpt_oss),
        Case("modelopt-nvfp4-fused", "ModelOpt",
             "two experts in one tensor, a factor for gate and one for up",
             {"quant_method": "modelopt", "quant_algo": "NVFP4"},
             {"experts.gate_up_proj": (2, 8, 64)}, fused_nvfp4),
    ]


# ---------------------------------------------------------------------------------------------


def write_case(case: Case, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    stored, values = {}, {}
    for matrix, shape in case.matrices.items():
        weight = random_weight(case.name + matrix, shape)
        written = case.write(weight)
        name = matrix + ".weight" if len(shape) == 2 else matrix
        between = "." if len(shape) == 2 else "_"
        for end, tensor in written.tensors.items():
            stored[matrix + between + end if end else matrix] = tensor
        values[name] = written.values
        if case.originals:
            values["original." + name] = weight
    save_file(stored, out / "model.safetensors")
    save_file(values, out / "dequantized.safetensors")
    writers.write_config({"quantization_config": case.config}, out / "config.json")
    for path in out.iterdir():
        path.chmod(0o644)


def write_readme(out: Path, cases: list[Case]) -> None:
    rows = [f"| `{c.name}` | {c.writer} | {c.covers} |" for c in cases]
    text = inspect.cleandoc("""
        # Quantised matrices

        One directory a case, written by `tools/make_quantized_goldens.py`: `config.json`,
        `model.safetensors` with the tensors that the named library stores, and
        `dequantized.safetensors` with the values that it dequantises them to (F32), and the weights
        that were quantised (`original.*`, BF16) where a rule of rounding is compared.

        | Directory | Values by | Covers |
        |---|---|---|
        """)
    (out / "README.md").write_text(text + "\n" + "\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--only", default="", help="part of the name of the cases to make")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases = compressed_cases() + modelopt_cases() + other_cases()
    installed = version("compressed-tensors")
    for case in cases:
        if args.only not in case.name or case.needs not in ("", installed):
            continue
        write_case(case, args.out / case.name)
        print(case.name)
    write_readme(args.out, cases)


if __name__ == "__main__":
    main()
