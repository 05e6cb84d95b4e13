"""What the quantisation libraries write for one weight matrix, and what they dequantise it to.

Every function takes a float weight [N, K] and gives a Stored: the tensors that stand in a
checkpoint, by the end of their names, and the library's own dequantised values in float32. Where a
library multiplies in a narrower type (compressed-tensors in that of the scales, GPTQ and AWQ in
half precision), its function gets the same scales in float32, so that the product is rounded once.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch

F8 = torch.float8_e4m3fn


@dataclass
class Stored:
    tensors: dict[str, torch.Tensor]  # "weight_packed" -> tensor
    values: torch.Tensor  # [N, K] float32


def write_config(config: dict, path: Path) -> None:
    text = json.dumps(config, indent=2,
                      default=lambda value: str(value) if isinstance(value, torch.dtype) else value)
    path.write_text(text + "\n", encoding="utf-8")


def shuffled_groups(cols: int, group: int, seed: int = 7) -> torch.Tensor:
    """g_idx of an activation order: which group each input belongs to."""
    order = torch.randperm(cols, generator=torch.Generator().manual_seed(seed))
    return (torch.argsort(order) // group).to(torch.int32)


# ---------------------------------------------------------------------------------------------
# FP8 with blocks: DeepSeek-V3 (inference/kernel.py, weight_dequant: y = x * s, a scale a block, the
# last ones partial) and transformers 5 (integrations/finegrained_fp8.py), which wants whole blocks.


def fp8_block(weight: torch.Tensor, block: tuple[int, int], ue8m0: bool = False,
              name: str = "weight_scale_inv") -> Stored:
    rows, cols = weight.shape
    n, k = -(-rows // block[0]), -(-cols // block[1])
    padded = torch.zeros(n * block[0], k * block[1])
    padded[:rows, :cols] = weight.float()
    amax = padded.view(n, block[0], k, block[1]).abs().amax(dim=(1, 3))
    scale = torch.where(amax > 0, amax, torch.ones(())) / torch.finfo(F8).max
    if ue8m0:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    wide = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:rows, :cols]
    codes = (weight.float() / wide).to(F8)
    stored = scale.to(torch.float8_e8m0fnu) if ue8m0 else scale
    if rows % block[0] == 0 and cols % block[1] == 0:
        check_with_transformers(codes, stored, codes.float() * wide)
    return Stored({"weight": codes, name: stored}, codes.float() * wide)


def check_with_transformers(codes, scale, values) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    theirs = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)
    if not torch.equal(theirs, values):
        raise ValueError("transformers dequantises to other values")


# ---------------------------------------------------------------------------------------------
# compressed-tensors


def compressed_args(**weights):
    from compressed_tensors.quantization import QuantizationArgs

    return QuantizationArgs(**weights)


def compressed_config(form: str, ignore: list[str], weights: dict) -> dict:
    """The quantization_config that llm-compressor writes for linear layers."""
    group = {"format": form, "targets": ["Linear"], "input_activations": None,
             "output_activations": None, "weights": weights}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ignore,
            "quantization_status": "compressed", "config_groups": {"group_0": group}}


def observed_range(weight: torch.Tensor, args) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and greatest value of everything that shares a scale, in the shape of the scales."""
    strategy = str(getattr(args.strategy, "value", args.strategy))
    if strategy == "tensor":
        return weight.amin().reshape(1), weight.amax().reshape(1)
    if strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if strategy == "block":
        rows, cols = args.block_structure
        padded = torch.nn.functional.pad(
            weight, (0, -weight.shape[1] % cols, 0, -weight.shape[0] % rows))
        blocks = padded.unflatten(1, (-1, cols)).unflatten(0, (-1, rows))
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.unflatten(1, (-1, args.group_size))
    return groups.amin(2), groups.amax(2)


def compressed(weight: torch.Tensor, args, form: str, g_idx: torch.Tensor | None = None) -> Stored:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    state = {"weight": weight}
    if str(getattr(args.strategy, "value", args.strategy)) == "tensor_group":
        state["weight_global_scale"] = generate_gparam(weight.amin(), weight.amax())
    in_groups = weight
    if g_idx is not None:
        state["weight_g_idx"] = g_idx
        in_groups = weight[:, torch.argsort(g_idx, stable=True)]
    low, high = observed_range(in_groups, args)
    scale, zero = calculate_qparams(low, high, args,
                                    global_scale=state.get("weight_global_scale"))
    state["weight_scale"] = scale.to(weight.dtype)
    state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, scheme)
    if form == "nvfp4-pack-quantized":
        values = nvfp4_values(stored, args)
    else:
        wide = dict(stored)
        if wide["weight_scale"].dtype in (torch.bfloat16, torch.float16):
            wide["weight_scale"] = wide["weight_scale"].float()
        values = compressor.decompress(wide, scheme)["weight"].float()
    return Stored({name: tensor.contiguous() for name, tensor in stored.items()},
                  values.contiguous())


def nvfp4_values(stored: dict[str, torch.Tensor], args) -> torch.Tensor:
    """What NVFP4PackedCompressor.decompress does, which would round to bfloat16, in float32."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    packed = stored["weight_packed"]
    codes = unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2, torch.float32)
    return dequantize(x_q=codes, scale=stored["weight_scale"].float(), args=args,
                      global_scale=stored["weight_global_scale"], dtype=torch.float32)


# ---------------------------------------------------------------------------------------------
# ModelOpt


def modelopt(weight: torch.Tensor, config_name: str) -> Stored:
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    linear = torch.nn.Sequential(
        torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype))
    with torch.no_grad():
        linear[0].weight.copy_(weight)
    config = copy.deepcopy(getattr(mtq, config_name))
    config["algorithm"] = "max"
    mtq.quantize(linear, config)
    _export_quantized_weight(linear[0], torch.bfloat16)
    tensors = {name: tensor.contiguous().clone() for name, tensor in linear[0].state_dict().items()
               if "quantizer" not in name}
    return Stored(tensors, modelopt_values(tensors, weight.shape))


def modelopt_values(tensors: dict[str, torch.Tensor], shape: torch.Size) -> torch.Tensor:
    from modelopt.torch.quantization import qtensor

    codes, scale = tensors["weight"], tensors["weight_scale"]
    rows, cols = shape
    if codes.dtype == F8 and scale.dtype == torch.uint8:
        return qtensor.MXFP8QTensor(shape, torch.float32, codes).dequantize(scale=scale)
    if codes.dtype == F8:  # FP8QTensor.dequantize: data * scale, with the scale spread out
        if scale.ndim == 4:
            blocks = scale[:, 0, :, 0]
            scale = blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :cols]
        return codes.float() * (scale[:, None] if scale.ndim == 1 else scale)
    if scale.dtype == torch.uint8:
        return qtensor.MXFP4QTensor(shape, torch.float32, codes).dequantize(
            scale=scale, block_sizes={-1: 32})
    if "weight_scale_2" in tensors:
        return qtensor.NVFP4QTensor(shape, torch.float32, codes).dequantize(
            scale=scale, double_scale=tensors["weight_scale_2"],
            block_sizes={-1: cols // scale.shape[1]})
    # export/quant_utils.py, pack_int4_in_uint8: row 2i low, row 2i + 1 high, two's complement
    signed = torch.stack([codes & 15, codes >> 4], dim=1).to(torch.int8)
    signed = torch.where(signed > 7, signed - 16, signed).reshape(rows, cols)
    return signed * scale.repeat_interleave(cols // scale.shape[1], 1)


# ---------------------------------------------------------------------------------------------
# GPTQ and AWQ, rounded to nearest (their calibration changes codes, not the format)


def integer_parameters(weight: torch.Tensor, group: int, symmetric: bool):
    """Scales (half precision) and zero points [N, K/group] of weights whose groups lie together."""
    groups = weight.unflatten(1, (-1, group))
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    width = 2 * torch.maximum(-low, high) if symmetric else high - low
    scale = torch.where(width > 0, width / 15, torch.ones(())).half().float()
    zero = torch.full_like(scale, 8) if symmetric else torch.round(-low / scale).clamp(0, 15)
    return scale, zero


def gptq(weight: torch.Tensor, group: int, symmetric: bool, v2: bool = False,
         g_idx: torch.Tensor | None = None) -> Stored:
    from gptqmodel.nn_modules.qlinear import PackableQuantLinear
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    rows, cols = weight.shape
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight = torch.nn.Parameter(weight.float(), requires_grad=False)
    module = TorchLinear(bits=4, group_size=group, sym=symmetric, desc_act=g_idx is not None,
                         in_features=cols, out_features=rows)
    if g_idx is None:
        g_idx = (torch.arange(cols) // group).to(torch.int32)
    in_groups = weight.float()[:, torch.argsort(g_idx, stable=True)]
    scale, zero = integer_parameters(in_groups, group, symmetric)
    module.pack_original(linear, scale, zero, g_idx)
    module.post_init()
    exact = copy.deepcopy(module)
    exact.scales = exact.scales.float()
    values = PackableQuantLinear.dequantize_weight(exact).T.contiguous()
    if not v2:
        convert_gptq_v2_to_v1_format_module(module, SimpleNamespace(bits=4, pack_dtype=torch.int32))
    names = ("qweight", "qzeros", "scales", "g_idx")
    return Stored({name: getattr(module, name).detach().clone() for name in names}, values)


def awq(weight: torch.Tensor, group: int) -> Stored:
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    rows, cols = weight.shape
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight = torch.nn.Parameter(weight.float(), requires_grad=False)
    scale, zero = integer_parameters(weight.float(), group, symmetric=False)
    # from_linear rounds without a clamp: what lies beyond the range would spill over.
    wide_scale = scale.repeat_interleave(group, 1)
    wide_zero = zero.repeat_interleave(group, 1)
    linear.weight.copy_(linear.weight.clamp(-wide_zero * wide_scale, (15 - wide_zero) * wide_scale))
    module = WQLinear_GEMM.from_linear(linear, 4, group, scales=scale.T.contiguous(),
                                       zeros=zero.T.contiguous())
    values = dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), 4, group)
    return Stored({name: getattr(module, name).clone() for name in ("qweight", "qzeros", "scales")},
                  values.T.contiguous())


# ---------------------------------------------------------------------------------------------
# MXFP4 without a writer of its own: codes of gguf, in the order of DeepSeek-V4 and gpt-oss


def mxfp4_codes(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bytes [N, K/2] with the even k low, exponents u8 [N, K/32], values, all by gguf."""
    import gguf

    quantized = gguf.quants.quantize(weight.float().numpy(), gguf.GGMLQuantizationType.MXFP4)
    values = gguf.quants.dequantize(quantized, gguf.GGMLQuantizationType.MXFP4)
    blocks = torch.from_numpy(quantized).view(weight.shape[0], -1, 17)
    packed = blocks[:, :, 1:]  # byte j: element j low, element j + 16 high
    codes = torch.cat([packed & 15, packed >> 4], dim=2).flatten(1)
    return (codes[:, 0::2] | codes[:, 1::2] << 4).contiguous(), blocks[:, :, 0].contiguous(), \
        torch.from_numpy(values)


def deepseek_v4(weight: torch.Tensor) -> Stored:
    packed, exponents, values = mxfp4_codes(weight)
    codes, scale = packed.view(torch.int8), exponents.view(torch.float8_e8m0fnu)
    check_with_transformers(codes, scale, values)
    return Stored({"weight": codes, "scale": scale}, values)


def gpt_oss(weight: torch.Tensor) -> Stored:
    """`weight` [E, N, K]; the values are those of transformers' own function."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    parts = [mxfp4_codes(expert) for expert in weight]
    blocks = torch.stack([packed.unflatten(1, (-1, 16)) for packed, _, _ in parts])
    scales = torch.stack([exponents for _, exponents, _ in parts])
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return Stored({"blocks": blocks, "scales": scales}, values.transpose(1, 2).contiguous())
