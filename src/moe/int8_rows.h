#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/gemm_kernel.h"
#include "kernels/packed_matrix.h"

namespace moesaic {

/// Rows of activations for experts whose products all make the same int8 codes of them
/// (docs/numerics.md): as these codes, and for each scale the largest magnitude, in f32. What
/// decode() gives, rounded to bf16, is another row than before, but one of which products make the
/// same codes and scales: all but the largest numbers are off by less than half a code. So nothing
/// is lost.
class Int8Rows {
 public:
  static constexpr std::int64_t kBlock = 128;

  /// Numbers that have a scale in common: a whole row, or kBlock.
  enum class Scales { row, block };

  Int8Rows(std::int64_t depth, Scales scales)
      : depth_(depth), scale_depth_(scales == Scales::row ? depth : kBlock) {}

  [[nodiscard]] std::int64_t bytes() const noexcept;
  /// `from` [depth], which products would round to bf16 first.
  void encode(const float* from, std::byte* to) const;
  /// call(first, numbers) for blocks of the row.
  template <typename Call>
  void decode(const std::byte* from, Call&& call) const {
    std::array<float, kBlock> numbers;
    for (std::int64_t first = 0; first < depth_; first += kBlock) {
      const std::int64_t count = std::min(depth_ - first, kBlock);
      decode_block(from, first, {numbers.data(), static_cast<std::size_t>(count)});
      call(first, std::span<const float>(numbers).first(static_cast<std::size_t>(count)));
    }
  }

 private:
  void decode_block(const std::byte* from, std::int64_t first, std::span<float> to) const;

  std::int64_t depth_;
  std::int64_t scale_depth_;
};

/// The scales with which products of such weights make int8 codes of a row; none: they take more of
/// it. `gate`: of an expert without adapters, whose up is like it. Its panels need not be there.
[[nodiscard]] std::optional<Int8Rows::Scales> int8_scales(const PackedMatrix& gate,
                                                          Int4Activations int4_activations);

}  // namespace moesaic
