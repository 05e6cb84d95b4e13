#include "tests/gpu/ptx_machine/collective_operations.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tests/gpu/ptx_machine/warp.h"

namespace moesaic::ptx {

void exchange_lanes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  // "%r1|%p1, %r2, 16, 31, -1"
  const std::uint64_t* const values = warp.slot(in.slots[2]);
  const std::uint64_t distance = *warp.slot(in.slots[3]);
  if (*warp.slot(in.slots[4]) != 31 ||
      static_cast<std::uint32_t>(*warp.slot(in.slots[5])) != 0xffffffff) {
    throw MachineError("an exchange of fewer than 32 lanes is not known");
  }
  warp.require_all(lanes);
  std::array<std::uint64_t, kWarpLanes> before;
  std::copy_n(values, kWarpLanes, before.begin());
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    warp.slot(in.slots[0])[lane] = before[lane ^ distance];
    warp.slot(in.slots[1])[lane] = 1;
  }
}

void multiply_bf16(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.require_all(lanes);
  std::uint16_t a[16][16];
  std::uint16_t b[8][16];
  float c[16][8];
  const auto half = [](std::uint64_t pair, std::size_t i) {
    return static_cast<std::uint16_t>(pair >> (16 * i));
  };
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    const std::size_t g = lane / 4;
    const std::size_t t = lane % 4;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t r = 0; r < 4; ++r) {
        a[g + r % 2 * 8][2 * t + i + r / 2 * 8] = half(warp.slot(in.slots[4 + r])[lane], i);
      }
      for (std::size_t r = 0; r < 2; ++r) {
        b[g][2 * t + i + r * 8] = half(warp.slot(in.slots[8 + r])[lane], i);
      }
    }
    for (std::size_t r = 0; r < 4; ++r) {
      c[g + r / 2 * 8][2 * t + r % 2] =
          std::bit_cast<float>(static_cast<std::uint32_t>(warp.slot(in.slots[10 + r])[lane]));
    }
  }
  mma_16x8x16(warp.block().family, a, b, c);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t r = 0; r < 4; ++r) {
      warp.slot(in.slots[r])[lane] =
          std::bit_cast<std::uint32_t>(c[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2]);
    }
  }
  if (warp.block().counters != nullptr) ++warp.block().counters->mma;
}

}  // namespace moesaic::ptx
