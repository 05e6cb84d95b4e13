#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu_features.h"

// Sixteen f32 lanes in plain C++: the truth that the other lanes.h files reproduce bit for bit.
//
// A file includes one lanes.h, of its instruction set, before headers written over lanes. Those
// include this one if there was none, as when a tool reads them alone.

// What code over the lanes stands between, so that it is compiled for their instructions.
#define MOESAIC_BEGIN_LANES
#define MOESAIC_END_LANES

namespace moesaic {
namespace {

inline constexpr Isa kLanesIsa = Isa::scalar;
inline constexpr std::int64_t kLanes = 16;
/// Attention: query rows handled together, and accumulators that registers hold in wide tiles (a
/// tile of one vector may take more).
inline constexpr int kTileRows = 4;
inline constexpr int kTileAccumulators = 4;

struct Lanes {
  float v[kLanes];
};
struct LaneMask {
  bool v[kLanes];
};

/// Which lanes a load or store touches. Lanes that are not loaded are 0.
struct AllLanes {};
struct FirstLanes {
  std::int64_t count;  // 1..15
};

template <typename Function>
inline Lanes each_lane(Function function) {
  Lanes out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = function(i);
  return out;
}

inline Lanes broadcast(float x) {
  return each_lane([&](int) { return x; });
}

template <typename Element>
inline Lanes load(const Element* p, AllLanes = {}) {
  return each_lane([&](int i) { return to_float(p[i]); });
}
template <typename Element>
inline Lanes load(const Element* p, FirstLanes part) {
  return each_lane([&](int i) { return i < part.count ? to_float(p[i]) : 0.0F; });
}

inline void store(float* p, Lanes a, FirstLanes part) {
  for (int i = 0; i < part.count; ++i) p[i] = a.v[i];
}
inline void store(float* p, Lanes a, AllLanes = {}) {
  store(p, a, FirstLanes{kLanes});
}
inline void store(BFloat16* p, Lanes a, FirstLanes part) {
  for (int i = 0; i < part.count; ++i) p[i] = to_bfloat16(a.v[i]);
}
inline void store(BFloat16* p, Lanes a, AllLanes = {}) {
  store(p, a, FirstLanes{kLanes});
}

inline Lanes operator+(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
inline Lanes operator-(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes operator*(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
inline Lanes operator/(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
/// a * b + c, rounded once.
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each_lane([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
/// a > b ? a : b, so b where either is NaN.
inline Lanes max(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
/// a < b ? a : b, so b where either is NaN.
inline Lanes min(Lanes a, Lanes b) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
/// a less the nearest integer, the even one of two; |a| < 2^22, or NaN.
inline Lanes minus_nearest(Lanes a) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves an integer in the low bits
  return a - ((a + broadcast(kRound)) - broadcast(kRound));
}
/// a * 2^n, rounded once; n is an integer in [-200, 200], or anything where a is NaN.
inline Lanes scale_by_power(Lanes a, Lanes n) {
  return each_lane([&](int i) {
    return std::isnan(a.v[i]) ? a.v[i] : std::ldexp(a.v[i], static_cast<int>(n.v[i]));
  });
}
/// a * 2^n by integer addition, where the result is a normal number; `n` has been rounded to an
/// integer by adding 1.5 * 2^23. A NaN that came from bf16 numbers stays NaN.
inline Lanes add_to_exponent(Lanes a, Lanes n) {
  return each_lane([&](int i) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.v[i]) +
                                (std::bit_cast<std::uint32_t>(n.v[i]) << 23));
  });
}
/// Rounded to the nearest bf16, ties to even. A NaN that came from bf16 numbers stays NaN.
inline Lanes round_to_bf16(Lanes a) {
  return each_lane([&](int i) {
    const auto bits = std::bit_cast<std::uint32_t>(a.v[i]);
    return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U);
  });
}
/// Writes lane i of both, rounded as round_to_bf16 does, side by side: 32 elements.
inline void store_pairs(BFloat16* p, Lanes even, Lanes odd) {
  const Lanes rounded[2] = {round_to_bf16(even), round_to_bf16(odd)};
  for (int i = 0; i < 2 * kLanes; ++i) p[i] = to_bfloat16(rounded[i % 2].v[i / 2]);
}
/// Sums of neighbours: lane i has 2 i and 2 i + 1 of the 32 lanes of `a` and `b`.
inline Lanes add_pairs(Lanes a, Lanes b) {
  return each_lane([&](int i) {
    const float* pair = i < 8 ? a.v + 2 * i : b.v + 2 * (i - 8);
    return pair[0] + pair[1];
  });
}

/// Lanes first <= i < end; the bounds may lie outside 0..16.
inline LaneMask lanes_between(std::int64_t first, std::int64_t end) {
  LaneMask out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = i >= first && i < end;
  return out;
}
/// a < b; not where one of them is NaN.
inline LaneMask less(Lanes a, Lanes b) {
  LaneMask out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = a.v[i] < b.v[i];
  return out;
}
inline Lanes select(LaneMask mask, Lanes a, Lanes b) {
  return each_lane([&](int i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}

/// The fixed tree: lane i + lane i + 8, then + 4, + 2, + 1.
inline float sum_lanes(Lanes a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
/// The same tree with max.
inline float max_lanes(Lanes a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

/// Asks for a cache line that will be read soon: into L2, which holds more than is in flight. Any
/// address will do.
inline void prefetch(const void*) {}

}  // namespace
}  // namespace moesaic
