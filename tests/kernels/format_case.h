#pragma once

#include <cstdint>
#include <random>

#include "base/buffer.h"
#include "kernels/packed_matrix.h"
#include "kernels/quantized_rows.h"

namespace moesaic {

/// Rows whose codes are 0 and whose scales are 1.
[[nodiscard]] QuantizedRows plain_rows(const Layout& layout, std::int64_t num_rows,
                                       std::int64_t depth);

[[nodiscard]] std::uint8_t& code_at(QuantizedRows& rows, std::int64_t row, std::int64_t k);

/// Draws rows with scales of the whole range of a format, and any codes with which values stay
/// within that of bf16.
class RandomRows {
 public:
  RandomRows(const Layout& layout, std::uint64_t seed) : layout_(layout), engine_(seed) {}

  [[nodiscard]] QuantizedRows draw(std::int64_t num_rows, std::int64_t depth);

 private:
  [[nodiscard]] std::uint8_t below(unsigned bound);
  [[nodiscard]] std::uint8_t draw_scale_code();
  [[nodiscard]] float draw_scale();
  void draw_group_scale(QuantizedRows& rows, std::int64_t row, std::int64_t group);
  [[nodiscard]] std::uint8_t draw_code(const QuantizedRows& rows, std::size_t group);
  [[nodiscard]] bool is_beyond_bf16(const QuantizedRows& rows, std::uint8_t code,
                                    std::size_t group) const;

  Layout layout_;
  std::mt19937_64 engine_;
};

/// A matrix of one panel. Packing it fails the test if it writes behind its end.
class OnePanel {
 public:
  OnePanel(const Layout& layout, const QuantizedRows& rows, float scale = 1);

  [[nodiscard]] const PackedMatrix& matrix() const { return matrix_; }
  [[nodiscard]] const std::byte* bytes() const { return memory_.data(); }
  /// What an element counts for before column_scale().
  [[nodiscard]] float decoded(std::int64_t column, std::int64_t k) const;

 private:
  Buffer<std::byte> memory_;
  PackedMatrix matrix_;
};

}  // namespace moesaic
