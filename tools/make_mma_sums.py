#!/usr/bin/env python3
"""Makes tests/data/gpu/mma_sums.txt and nvfp4_sums.txt: what tensor cores give for one mma, as MMA-Sim says.

MMA-Sim (https://github.com/microsoft/MMA-Sim, tried at c785138) was compared with the chips by its authors. A line is
the chip, and in hex the bits of a [16][16], b [8][16] (bf16), c and the sums [16][8] (f32); of nvfp4 the codes of a
[16][8] and b [8][8], eight a word, their scales [16][4] and [8][4], c and the sums. Needs PyTorch.

MMA-Sim takes -126 for the exponent of a zero, where an H200 takes none (docs/gpu.md): with these draws no sum shows it.

usage: tools/make_mma_sums.py MMA_SIM_DIRECTORY
"""

import random
import struct
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpu"
ARCHITECTURES = {80: "Ampere", 90: "Hopper", 120: "RTX Blackwell"}


def bf16_value(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def f32_value(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def f32_bits(value: float) -> int:
    return 0x7FFFFFFF if value != value else struct.unpack("<I", struct.pack("<f", value))[0]


def draw_bf16(kind: str) -> int:
    """Bits of a bf16 number: of about one size, of any size, small and subnormal, or special now and then."""
    sign = random.getrandbits(1) << 15
    if kind == "near":
        return sign | random.randint(124, 130) << 7 | random.getrandbits(7)
    if kind == "small":
        return sign | random.choice([0, 0, 1, 2, 60, 64, 120]) << 7 | random.getrandbits(7)
    if kind == "special" and random.random() < 0.02:
        return sign | random.choice([0x7F80, 0x7FC0, 0x7F7F])
    if random.random() < 0.05:
        return sign  # zero
    return sign | random.randint(90, 160) << 7 | random.getrandbits(7)


def draw_f32(kind: str) -> int:
    if kind == "special" and random.random() < 0.02:
        return random.choice([0x7F800000, 0xFF800000, 0x7FC00000])
    return draw_bf16(kind if kind != "special" else "any") << 16 | random.getrandbits(16)


def draw_scale(kind: str) -> int:
    """An e4m3 scale: of about one size, of any size, small with zeros, or NaN now and then."""
    if kind == "near":
        return random.randint(0x30, 0x48)
    if kind == "small":
        return random.choice([0, 0, 1, 7, 8, random.randint(0, 0x7E)])
    if kind == "special" and random.random() < 0.01:
        return 0x7F
    return random.randint(0, 0x7E)


def draw_addend(kind: str) -> int:
    """Not an infinity, which MMA-Sim does not take here."""
    if kind == "special" and random.random() < 0.02:
        return 0x7FC00000
    if random.random() < 0.1:
        return random.choice([0, 0x80000000, 1, 0x807FFFFF])
    exponent = {"near": (127, 137), "any": (90, 160), "small": (1, 127), "special": (110, 150)}[kind]
    return random.getrandbits(1) << 31 | random.randint(*exponent) << 23 | random.getrandbits(23)


def nvfp4_lines() -> list:
    import torch
    from mmasim.simulator.nv_ptx import mma_block_scale

    random.seed(5)
    multiply = mma_block_scale("RTX Blackwell", "m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3")
    lines = []
    for kind in ("near", "any", "small", "special"):
        codes = [[random.getrandbits(32) for _ in range(8)] for _ in range(24)]
        scales = [[draw_scale(kind) for _ in range(4)] for _ in range(24)]
        c = [[draw_addend(kind) for _ in range(8)] for _ in range(16)]
        packed = [[word >> 8 * i & 255 for word in row for i in range(4)] for row in codes]
        left = torch.tensor(packed[:16], dtype=torch.uint8).view(multiply.a_type)
        right = torch.tensor([list(k) for k in zip(*packed[16:])], dtype=torch.uint8).view(multiply.b_type)
        left_scales = torch.tensor(scales[:16], dtype=torch.uint8).view(multiply.s_type)
        right_scales = torch.tensor([list(k) for k in zip(*scales[16:])], dtype=torch.uint8).view(multiply.s_type)
        addend = torch.tensor([[f32_value(x) for x in row] for row in c], dtype=torch.float32)
        sums = multiply(left, right, addend, left_scales, right_scales)
        words = [f"{x:08x}" for row in codes for x in row] + [f"{x:02x}" for row in scales for x in row]
        words += [f"{x:08x}" for row in c for x in row]
        words += [f"{f32_bits(sums[m, n].item()):08x}" for m in range(16) for n in range(8)]
        lines.append(" ".join(words))
    return lines


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import torch
    from mmasim.simulator.nv_ptx import mma

    random.seed(3)
    lines = []
    for kind in ("near", "any", "small", "special"):
        a = [[draw_bf16(kind) for _ in range(16)] for _ in range(16)]
        b = [[draw_bf16(kind) for _ in range(16)] for _ in range(8)]
        c = [[draw_f32(kind) for _ in range(8)] for _ in range(16)]
        left = torch.tensor([[bf16_value(x) for x in row] for row in a], dtype=torch.bfloat16)
        right = torch.tensor([[bf16_value(b[n][k]) for n in range(8)] for k in range(16)], dtype=torch.bfloat16)
        addend = torch.tensor([[f32_value(x) for x in row] for row in c], dtype=torch.float32)
        for chip, architecture in ARCHITECTURES.items():
            sums = mma(architecture, "m16n8k16.f32.bf16.bf16.f32")(left, right, addend)
            words = [f"{x:04x}" for row in a + b for x in row] + [f"{x:08x}" for row in c for x in row]
            words += [f"{f32_bits(sums[m, n].item()):08x}" for m in range(16) for n in range(8)]
            lines.append(" ".join([str(chip)] + words))
    (OUT / "mma_sums.txt").write_text("\n".join(lines) + "\n")
    (OUT / "nvfp4_sums.txt").write_text("\n".join(nvfp4_lines()) + "\n")


if __name__ == "__main__":
    main()
