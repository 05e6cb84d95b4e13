#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/vector_kernels.h"

namespace moesaic {

/// What rows and results are rounded to before they travel, or would. All of them are, also those
/// that stay on their rank, so that logits depend on the form and not on where experts are.
enum class WireForm {
  exact,  ///< rows as the experts' products take them, results in f32
  bf16,   ///< results in bf16, nearest even
  int8    ///< rows and results in int8, with an f32 scale for 128 values
};

/// f32 numbers to a form and back; exact ones need neither, and are in f32.
class WireCodec {
 public:
  /// Numbers that have a scale in common, and are decoded together.
  static constexpr std::int64_t kBlock = 128;

  WireCodec(WireForm form, const VectorKernels& vector) : form_(form), vector_(&vector) {}

  [[nodiscard]] bool is_exact() const noexcept { return form_ == WireForm::exact; }
  /// Bytes of n numbers.
  [[nodiscard]] std::int64_t bytes(std::int64_t n) const noexcept { return bytes(form_, n); }
  [[nodiscard]] static std::int64_t bytes(WireForm form, std::int64_t n) noexcept;
  /// To bf16 or int8.
  void encode(const float* from, std::int64_t n, std::byte* to) const;
  /// From bf16 or int8: call(first, numbers) for blocks of the n numbers of `from`.
  template <typename Call>
  void decode(const std::byte* from, std::int64_t n, Call&& call) const {
    std::array<float, kBlock> numbers;
    for (std::int64_t first = 0; first < n; first += kBlock) {
      const std::int64_t count = std::min(n - first, kBlock);
      decode_block(from, {n, first, count}, numbers.data());
      call(first, std::span<const float>(numbers).first(static_cast<std::size_t>(count)));
    }
  }
  /// sum[i] = fma(weight, from[i], sum[i]).
  void add_scaled(const std::byte* from, float weight, std::span<float> sum) const;

 private:
  /// Numbers [first, first + count) of n.
  struct Block {
    std::int64_t n;
    std::int64_t first;
    std::int64_t count;
  };
  void decode_block(const std::byte* from, const Block& block, float* to) const;
  static void decode_int8(const std::byte* from, const Block& block, float* to);

  WireForm form_;
  const VectorKernels* vector_;
};

}  // namespace moesaic
