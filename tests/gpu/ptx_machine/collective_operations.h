#pragma once

#include <cstdint>

#include "tests/gpu/ptx_machine/program.h"

// What the lanes of a warp do together: an error if some are missing.

namespace moesaic::ptx {

/// shfl.sync.bfly.b32 with a mask of all lanes: each gets what lane ^ operand has.
void exchange_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// shfl.sync.up.b32, likewise: what lane - operand has, or its own.
void exchange_up(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// shfl.sync.idx.b32, likewise: what lane operand has.
void spread_lane(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// match.any.sync.b32: which lanes have the same.
void match_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// bar.warp.sync: all lanes are there.
void meet_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// mma.sync m16n8k16 of bf16.
void multiply_bf16(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
/// mma.sync m16n8k64 of e2m1 with an e4m3 scale for 16 k, on sm_120 and sm_121.
void multiply_nvfp4(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace moesaic::ptx
