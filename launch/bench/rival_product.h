#pragma once

#include <cstdint>
#include <vector>

#include "launch/bench/onednn_rival.h"
#include "launch/bench/sample_rows.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {

/// oneDNN's product of the same rows and weights as ours.
class RivalProduct {
 public:
  /// Whether oneDNN has products of such weights: bf16 and int8.
  [[nodiscard]] static bool exists(const Layout& layout) noexcept {
    return layout.format == Format::bf16 || layout.format == Format::int8;
  }

  /// Matrices [shape] of the weights rotate over `memory`. All must outlive this.
  RivalProduct(const SampleWeights& weights, const SampleRows& rows, const MatrixShape& shape,
               std::span<std::byte> memory);

  /// Gets ready for the first `num_rows` rows.
  void prepare(std::int64_t num_rows, int threads);
  void run() { rival_.run(); }
  /// Of the last product; of int8, as its scales make it.
  [[nodiscard]] double result(std::int64_t row, std::int64_t column) const;
  [[nodiscard]] std::int64_t packed_bytes() const noexcept { return rival_.packed_bytes(); }

 private:
  const SampleWeights* weights_;
  const SampleRows* rows_;
  MatrixShape shape_;
  std::vector<std::byte> plain_;  // weights [columns, depth], bf16 or int8
  QuantizedRows input_codes_;     // int8
  OneDnnRival rival_;
};

}  // namespace moesaic
