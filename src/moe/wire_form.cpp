#include "src/moe/wire_form.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "kernels/cpu/token_scale.h"
#include "kernels/format.h"
#include "src/moe/int8_codes.h"

namespace moesaic {
namespace {

// A row in int8: int8 codes[n rounded up to 4], f32 scales[blocks of n]; number = code * scale.

void encode_int8(const float* from, std::int64_t n, std::byte* to) {
  auto* const codes = reinterpret_cast<std::int8_t*>(to);
  std::byte* scales = to + scales_behind_codes(n);
  for (std::int64_t first = 0; first < n; first += WireCodec::kBlock) {
    const std::int64_t count = std::min(n - first, WireCodec::kBlock);
    const TokenScale scale = token_scale(largest_bits(from + first, count));
    for (std::int64_t i = first; i < first + count; ++i) {
      codes[i] = nearest_code(from[i] * scale.inverse);
    }
    std::memcpy(scales, &scale.scale, sizeof(float));
    scales += sizeof(float);
  }
}

}  // namespace

std::int64_t WireCodec::bytes(WireForm form, std::int64_t n) noexcept {
  switch (form) {
    case WireForm::bf16:
      return 2 * n;
    case WireForm::int8:
      return scales_behind_codes(n) + 4 * divide_up(n, kBlock);
    default:
      return 4 * n;
  }
}

void WireCodec::encode(const float* from, std::int64_t n, std::byte* to) const {
  if (form_ == WireForm::int8) return encode_int8(from, n, to);
  vector_->to_bf16(from, n, reinterpret_cast<BFloat16*>(to));
}

void WireCodec::decode_int8(const std::byte* from, const Block& block, float* to) {
  const auto* const codes = reinterpret_cast<const std::int8_t*>(from) + block.first;
  float scale = 0;
  std::memcpy(&scale, from + scales_behind_codes(block.n) + block.first / kBlock * 4,
              sizeof(scale));
  for (std::int64_t i = 0; i < block.count; ++i) to[i] = static_cast<float>(codes[i]) * scale;
}

void WireCodec::decode_block(const std::byte* from, const Block& block, float* to) const {
  if (form_ == WireForm::int8) return decode_int8(from, block, to);
  const auto* const numbers = reinterpret_cast<const BFloat16*>(from) + block.first;
  for (std::int64_t i = 0; i < block.count; ++i) to[i] = to_float(numbers[i]);
}

void WireCodec::add_scaled(const std::byte* from, float weight, std::span<float> sum) const {
  if (form_ == WireForm::exact) {
    return vector_->add_scaled(reinterpret_cast<const float*>(from), weight, std::ssize(sum),
                               sum.data());
  }
  decode(from, std::ssize(sum), [&](std::int64_t first, std::span<const float> numbers) {
    vector_->add_scaled(numbers.data(), weight, std::ssize(numbers), sum.data() + first);
  });
}

}  // namespace moesaic
