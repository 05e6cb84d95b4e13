#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace moesaic {

// Numbers of 4 and 8 bits.
//
//   e2m1  sign, 2 bits of exponent (bias 1), 1 of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6
//   e4m3  sign, 4 bits of exponent (bias 7), 3 of mantissa: up to 448; 0x7f and 0xff are NaN, there
//         is no infinity (OCP 8-bit Floating Point Specification 1.0)
//   e8m0  2^(code - 127); 0xff is NaN
//
// e2m1 and e8m0 are those of the OCP Microscaling Formats Specification 1.0. Larger magnitudes have
// larger codes.

inline constexpr float kLargestE2m1 = 6;
inline constexpr float kLargestE4m3 = 448;
inline constexpr std::uint8_t kE4m3One = 0x38;
inline constexpr std::uint8_t kE8m0One = 127;
inline constexpr std::uint8_t kE8m0Nan = 255;

namespace detail {

/// 2^exponent, a normal float.
[[nodiscard]] constexpr float power_of_two(int exponent) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The value of a code without its sign.
template <int ExponentBits, int MantissaBits>
[[nodiscard]] constexpr float small_float(std::uint32_t magnitude) noexcept {
  constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  const auto exponent = static_cast<int>(magnitude >> MantissaBits);
  const auto mantissa = static_cast<float>(magnitude & ((1U << MantissaBits) - 1));
  const float fraction = mantissa * power_of_two(-MantissaBits);
  return exponent == 0 ? fraction * power_of_two(1 - kBias)
                       : (1 + fraction) * power_of_two(exponent - kBias);
}

/// The code that is nearest to a value, even ones at ties; `largest` for magnitudes above it.
template <int ExponentBits, int MantissaBits>
[[nodiscard]] constexpr std::uint8_t nearest_small_float(float value, float largest) noexcept {
  constexpr int kSmallestExponent = 128 - (1 << (ExponentBits - 1)) + 1;  // of floats
  const auto bits = std::bit_cast<std::int32_t>(value);
  const auto largest_bits = std::bit_cast<std::int32_t>(largest);
  const std::int32_t magnitude = std::min(bits & 0x7fffffff, largest_bits);
  const std::int32_t exponent =
      std::clamp((bits & 0x7fffffff) >> 23, kSmallestExponent, largest_bits >> 23);
  // A float whose last bit counts for as much as that of the code: a sum is rounded to it.
  const std::int32_t rounder = (exponent + 23 - MantissaBits) << 23;
  const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(rounder);
  const std::int32_t significand = std::bit_cast<std::int32_t>(sum) - rounder;
  const std::int32_t code = significand + ((exponent - kSmallestExponent) << MantissaBits);
  const std::int32_t sign = (bits >> 31) & (1 << (ExponentBits + MantissaBits));
  return static_cast<std::uint8_t>(sign | code);
}

inline constexpr std::array<float, 256> kE4m3Floats = [] {
  std::array<float, 256> values{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    float value = small_float<4, 3>(code & 0x7f);
    if ((code & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    values[code] = (code & 0x80) != 0 ? -value : value;
  }
  return values;
}();

}  // namespace detail

/// `code` is 0 to 15.
[[nodiscard]] constexpr float e2m1_to_float(std::uint8_t code) noexcept {
  const float magnitude = detail::small_float<2, 1>(code & 7U);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

[[nodiscard]] constexpr float e4m3_to_float(std::uint8_t code) noexcept {
  return detail::kE4m3Floats[code];
}

[[nodiscard]] constexpr bool is_e4m3_nan(std::uint8_t code) noexcept {
  return (code & 0x7f) == 0x7f;
}

/// Code 0 is a subnormal float.
[[nodiscard]] constexpr float e8m0_to_float(std::uint8_t code) noexcept {
  if (code == kE8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23);
}

/// The nearest code, even ones at ties; 6 for magnitudes above it. Not for NaN.
[[nodiscard]] constexpr std::uint8_t nearest_e2m1(float value) noexcept {
  return detail::nearest_small_float<2, 1>(value, kLargestE2m1);
}

/// The nearest code, even ones at ties; 448 for magnitudes above it. Not for NaN.
[[nodiscard]] constexpr std::uint8_t nearest_e4m3(float value) noexcept {
  return detail::nearest_small_float<4, 3>(value, kLargestE4m3);
}

/// The smallest power of two that is not below `value`, from 0 to 2^127.
[[nodiscard]] constexpr std::uint8_t e8m0_not_below(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits <= 0x00400000U) return 0;  // 2^-127
  return static_cast<std::uint8_t>((bits >> 23) + ((bits & 0x007fffffU) != 0 ? 1 : 0));
}

}  // namespace moesaic
