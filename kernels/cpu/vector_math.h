#pragma once

#include <cstdint>

#include "kernels/cpu/target_region.h"
#ifndef MOESAIC_BEGIN_LANES
#include "kernels/cpu/scalar/lanes.h"
#endif

// What code over the 16 lanes of an instruction set shares.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Calls body(i, part) for 16 elements at a time from i; part says which lanes of them exist.
template <typename Body>
inline void for_each_vector(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, AllLanes{});
  if (i < n) body(i, FirstLanes{n - i});
}

/// `a` in the lanes of the part, `other` in the rest.
inline Lanes select(AllLanes, Lanes a, Lanes) {
  return a;
}
inline Lanes select(FirstLanes part, Lanes a, Lanes other) {
  return select(lanes_between(0, part.count), a, other);
}

/// exp(x), error below 0.9 units in the last place: x = n ln 2 + r, |r| <= ln(2) / 2, and a
/// polynomial of degree 6 in r (minimax, relative error 3.2e-9). Subnormal results are rounded
/// once.
inline Lanes exp(Lanes x) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves an integer in the low bits
  // Beyond these bounds the result is 0 or infinite anyway. NaN stays, being the second operand.
  x = min(broadcast(89.0F), max(broadcast(-104.0F), x));
  const Lanes n = fma(x, broadcast(0x1.715476p+0F), broadcast(kRound)) - broadcast(kRound);
  Lanes r = fma(n, broadcast(-0x1.62e43p-1F), x);  // ln 2 in two parts; this one is exact
  r = fma(n, broadcast(0x1.05c61p-29F), r);
  Lanes p = broadcast(0x1.6a4b36p-10F);
  p = fma(p, r, broadcast(0x1.12398ep-7F));
  p = fma(p, r, broadcast(0x1.5558b2p-5F));
  p = fma(p, r, broadcast(0x1.555492p-3F));
  p = fma(p, r, broadcast(0x1.fffffcp-2F));
  p = fma(p, r, broadcast(1.0F));
  p = fma(p, r, broadcast(1.0F));
  return scale_by_power(p, n);
}

/// 2^r for |r| <= 1/2, relative error 2.9e-6: a polynomial of degree 4 (minimax).
inline Lanes power_of_fraction(Lanes r) {
  Lanes p = broadcast(0x1.3a02ccp-7F);
  p = fma(p, r, broadcast(0x1.c9fc46p-5F));
  p = fma(p, r, broadcast(0x1.ec0378p-3F));
  p = fma(p, r, broadcast(0x1.62e12cp-1F));
  return fma(p, r, broadcast(1.0F));
}

/// Below it power_of_two() stays about where it is there.
inline constexpr float kLowestPower = -125.0F;

/// 2^x for x <= 0 (or a little above), 1 for 0, as exact as power_of_fraction(): far more than a
/// weight that is rounded to bf16 needs. NaN stays.
inline Lanes power_of_two(Lanes x) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves an integer in the low bits
  x = max(broadcast(kLowestPower), x);
  return add_to_exponent(power_of_fraction(minus_nearest(x)), x + broadcast(kRound));
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
