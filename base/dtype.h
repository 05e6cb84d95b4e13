#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moesaic {

/// Element types as safetensors names them.
enum class DType {
  boolean,
  u8,
  i8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f16,
  bf16,
  f32,
  f64
};

/// Bytes of one element.
[[nodiscard]] std::int64_t dtype_bytes(DType dtype) noexcept;
/// The safetensors spelling, such as "BF16".
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;
/// Inverse of dtype_name.
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// A bfloat16 value: the upper half of a float's bits.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Exact.
[[nodiscard]] inline float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
[[nodiscard]] inline float to_float(float value) noexcept {
  return value;
}

/// Nearest-even; NaN stays NaN (quiet). Subnormals are kept, as in scalar conversions of PyTorch.
[[nodiscard]] inline BFloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

/// IEEE half precision to float, exact (subnormals, infinities and NaN included).
[[nodiscard]] float half_to_float(std::uint16_t bits) noexcept;

}  // namespace moesaic
