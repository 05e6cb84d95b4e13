#!/usr/bin/env python3
"""Makes tests/data/gpu/mma_sums.txt: what tensor cores give for one mma of bf16, as MMA-Sim says.

MMA-Sim (https://github.com/microsoft/MMA-Sim, tried at c785138) was compared with the chips by its authors. A line is
the chip, and in hex the bits of a [16][16], b [8][16] (bf16), c and the sums [16][8] (f32). Needs PyTorch.

usage: tools/make_mma_sums.py MMA_SIM_DIRECTORY
"""

import random
import struct
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpu" / "mma_sums.txt"
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
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
