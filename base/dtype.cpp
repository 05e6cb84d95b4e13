#include "base/dtype.h"

#include <array>

namespace moesaic {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kInfos = {
    DTypeInfo{DType::boolean, "BOOL", 1},    DTypeInfo{DType::u8, "U8", 1},
    DTypeInfo{DType::i8, "I8", 1},           DTypeInfo{DType::i16, "I16", 2},
    DTypeInfo{DType::u16, "U16", 2},         DTypeInfo{DType::i32, "I32", 4},
    DTypeInfo{DType::u32, "U32", 4},         DTypeInfo{DType::i64, "I64", 8},
    DTypeInfo{DType::u64, "U64", 8},         DTypeInfo{DType::f8_e4m3, "F8_E4M3", 1},
    DTypeInfo{DType::f8_e5m2, "F8_E5M2", 1}, DTypeInfo{DType::f8_e8m0, "F8_E8M0", 1},
    DTypeInfo{DType::f16, "F16", 2},         DTypeInfo{DType::bf16, "BF16", 2},
    DTypeInfo{DType::f32, "F32", 4},         DTypeInfo{DType::f64, "F64", 8},
};

constexpr const DTypeInfo& info(DType dtype) {
  return kInfos[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::int64_t dtype_bytes(DType dtype) noexcept {
  return info(dtype).bytes;
}

std::string_view dtype_name(DType dtype) noexcept {
  return info(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const DTypeInfo& entry : kInfos) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

float half_to_float(std::uint16_t bits) noexcept {
  const auto sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t exponent_bits = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (exponent_bits << 23) | (mantissa << 13));
}

}  // namespace moesaic
