#include "src/moe/int8_rows.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/dtype.h"
#include "base/rounding.h"
#include "kernels/cpu/token_scale.h"
#include "kernels/format.h"
#include "src/moe/int8_codes.h"

namespace moesaic {
namespace {

// A row: int8 codes[depth rounded up to 4], f32 largest[depth / scale depth, rounded up].

constexpr std::int64_t kFloatBytes = 4;
constexpr int kLargestCode = 127;

}  // namespace

std::int64_t Int8Rows::bytes() const noexcept {
  return scales_behind_codes(depth_) + divide_up(depth_, scale_depth_) * kFloatBytes;
}

void Int8Rows::encode(const float* from, std::byte* to) const {
  auto* const codes = reinterpret_cast<std::int8_t*>(to);
  std::array<float, kBlock> rounded;
  const auto round_block = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      rounded[static_cast<std::size_t>(i)] = to_float(to_bfloat16(from[first + i]));
    }
    return rounded.data();
  };
  for (std::int64_t first = 0; first < depth_; first += scale_depth_) {
    const std::int64_t end = std::min(depth_, first + scale_depth_);
    std::uint32_t bits = 0;
    for (std::int64_t at = first; at < end; at += kBlock) {
      const std::int64_t count = std::min(end - at, kBlock);
      bits = std::max(bits, largest_bits(round_block(at, count), count));
    }
    const float inverse = token_scale(bits).inverse;
    for (std::int64_t at = first; at < end; at += kBlock) {
      const std::int64_t count = std::min(end - at, kBlock);
      const float* const numbers = round_block(at, count);
      for (std::int64_t i = 0; i < count; ++i) codes[at + i] = nearest_code(numbers[i] * inverse);
    }
    std::memcpy(to + scales_behind_codes(depth_) + first / scale_depth_ * kFloatBytes, &bits,
                sizeof(bits));
  }
}

void Int8Rows::decode_block(const std::byte* from, std::int64_t first, std::span<float> to) const {
  const auto* const codes = reinterpret_cast<const std::int8_t*>(from) + first;
  std::uint32_t bits = 0;
  std::memcpy(&bits, from + scales_behind_codes(depth_) + first / scale_depth_ * kFloatBytes,
              sizeof(bits));
  const float scale = token_scale(bits).scale;
  const float largest = std::bit_cast<float>(bits);
  if (std::isnan(scale) || scale == 0) {  // products find it again in one number
    std::ranges::fill(to, std::isnan(scale) ? largest : 0.0F);
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int code = codes[i];
    to[i] = std::abs(code) == kLargestCode ? std::copysign(largest, static_cast<float>(code))
                                           : static_cast<float>(code) * scale;
  }
}

std::optional<Int8Rows::Scales> int8_scales(const PackedMatrix& gate,
                                            Int4Activations int4_activations) {
  if (gate.order != nullptr) return {};
  if (is_integer(gate.layout.format)) return Int8Rows::Scales::row;
  const bool takes_groups =
      allows_int8_groups(gate.layout) && int4_activations == Int4Activations::int8;
  return takes_groups ? std::optional(Int8Rows::Scales::block) : std::nullopt;
}

}  // namespace moesaic
