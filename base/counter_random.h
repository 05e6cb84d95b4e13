#pragma once

#include <cstdint>

namespace moesaic {

/// Random numbers without a state: what is drawn for a place depends on the place alone, so that
/// any rank or thread can draw any of them in any order. SplitMix64's finalizer (Steele, Lea and
/// Flood 2014) over the parts of the key, one after the other.
class CounterRandom {
 public:
  constexpr explicit CounterRandom(std::uint64_t seed) : key_(mix(seed)) {}

  /// The generator of one part of what this one is for: a step, a tensor, a row.
  [[nodiscard]] constexpr CounterRandom at(std::uint64_t index) const {
    return CounterRandom(key_ ^ mix(index), 0);
  }
  /// 64 random bits of place `index`.
  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const {
    return mix(key_ ^ mix(index));
  }
  /// In [0, 1), a multiple of 2^-53.
  [[nodiscard]] constexpr double unit(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 11U) * 0x1p-53;
  }

 private:
  constexpr CounterRandom(std::uint64_t key, int) : key_(mix(key)) {}

  static constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  std::uint64_t key_;
};

}  // namespace moesaic
