#include "tests/gpu/ptx_machine/collective_operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>

#include "tests/gpu/ptx_machine/warp.h"

namespace moesaic::ptx {

namespace {

/// "%r1|%p1, %r2, 16, 31, -1": lane i gets what lane from(i, number) has, or its own.
template <typename From>
void exchange(Warp& warp, const Instruction& in, std::uint32_t lanes, std::uint64_t clamp,
              const From& from) {
  const std::uint64_t* const values = warp.slot(in.slots[2]);
  const auto number = static_cast<int>(*warp.slot(in.slots[3]));
  if (*warp.slot(in.slots[4]) != clamp ||
      static_cast<std::uint32_t>(*warp.slot(in.slots[5])) != 0xffffffff) {
    throw MachineError("an exchange of fewer than 32 lanes is not known");
  }
  warp.require_all(lanes);
  std::array<std::uint64_t, kWarpLanes> before;
  std::copy_n(values, kWarpLanes, before.begin());
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int other = from(lane, number);
    const bool is_there = other >= 0 && other < kWarpLanes;
    warp.slot(in.slots[0])[lane] = before[static_cast<std::size_t>(is_there ? other : lane)];
    warp.slot(in.slots[1])[lane] = is_there ? 1 : 0;
  }
}

}  // namespace

void exchange_lanes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  exchange(warp, in, lanes, 31, [](int lane, int distance) { return lane ^ distance; });
}

void exchange_up(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  exchange(warp, in, lanes, 0, [](int lane, int distance) { return lane - distance; });
}

void spread_lane(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  exchange(warp, in, lanes, 31, [](int, int source) { return source % kWarpLanes; });
}

void match_lanes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  // "%r1, %r2, -1"
  meet_lanes(warp, in, lanes);
  std::array<std::uint32_t, kWarpLanes> values;
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    values[lane] = static_cast<std::uint32_t>(warp.slot(in.slots[1])[lane]);
  }
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::uint32_t same = 0;
    for (std::size_t other = 0; other < kWarpLanes; ++other) {
      same |= static_cast<std::uint32_t>(values[other] == values[lane]) << other;
    }
    warp.slot(in.slots[0])[lane] = same;
  }
}

void meet_lanes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  // The mask stands last.
  if (static_cast<std::uint32_t>(
          *warp.slot(in.slots[static_cast<std::size_t>(in.num_slots - 1)])) != 0xffffffff) {
    throw MachineError("a meeting of fewer than 32 lanes is not known");
  }
  warp.require_all(lanes);
}

namespace {

/// The lanes' places of the sums [16][8] of an mma; those of lane's register r are in slot first +
/// r.
template <typename Call>
void for_each_sum(Warp& warp, const Instruction& in, std::size_t first, const Call& call) {
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t r = 0; r < 4; ++r) {
      call(lane / 4 + r / 2 * 8, 2 * (lane % 4) + r % 2, warp.slot(in.slots[first + r])[lane]);
    }
  }
}

void load_sums(Warp& warp, const Instruction& in, std::size_t first, float (*c)[8]) {
  for_each_sum(warp, in, first, [&](std::size_t row, std::size_t column, std::uint64_t bits) {
    c[row][column] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  });
}

/// To the first operand.
void store_sums(Warp& warp, const Instruction& in, const float (*c)[8]) {
  for_each_sum(warp, in, 0, [&](std::size_t row, std::size_t column, std::uint64_t& bits) {
    bits = std::bit_cast<std::uint32_t>(c[row][column]);
  });
  if (warp.block().counters != nullptr) ++warp.block().counters->mma;
}

/// Eight codes of 4 bits, the lowest first.
void unpack_codes(std::uint64_t word, std::uint8_t* to) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::uint8_t>(word >> (4 * i) & 15);
}

}  // namespace

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
  }
  load_sums(warp, in, 10, c);
  mma_16x8x16(family_of(warp.block().chip), a, b, c);
  store_sums(warp, in, c);
}

void multiply_nvfp4(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.require_all(lanes);
  const int chip = warp.block().chip;
  if (chip != 120 && chip != 121) {
    throw MachineError(fmt::format("sm_{} has no block scales", chip));
  }
  // Which lanes of four have the scales: a pair of them those of a, one those of b.
  const auto of_a = static_cast<std::size_t>(*warp.slot(in.slots[16]));
  const auto of_b = static_cast<std::size_t>(*warp.slot(in.slots[19]));
  if (*warp.slot(in.slots[15]) != 0 || *warp.slot(in.slots[18]) != 0 || of_a > 1 || of_b > 3) {
    throw MachineError("scales of bytes or lanes that there are not");
  }
  ScaledMatrix<16> a;
  ScaledMatrix<8> b;
  float c[16][8];
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    const std::size_t g = lane / 4;
    const std::size_t t = lane % 4;
    for (std::size_t r = 0; r < 4; ++r) {
      unpack_codes(warp.slot(in.slots[4 + r])[lane], a.codes[g + r % 2 * 8] + 8 * t + r / 2 * 32);
    }
    for (std::size_t r = 0; r < 2; ++r) {
      unpack_codes(warp.slot(in.slots[8 + r])[lane], b.codes[g] + 8 * t + r * 32);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const auto scale = [&](std::size_t operand) {
        return static_cast<std::uint8_t>(warp.slot(in.slots[operand])[lane] >> (8 * i));
      };
      if (t / 2 == of_a) a.scales[g + t % 2 * 8][i] = scale(14);
      if (t == of_b) b.scales[g][i] = scale(17);
    }
  }
  load_sums(warp, in, 10, c);
  mma_16x8x64(a, b, c);
  store_sums(warp, in, c);
}

}  // namespace moesaic::ptx
