#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/vector_kernels.h"

namespace moesaic {

/// Which rows of a forward pass have values that are not finite, and since when: once there, they
/// do not go away. Damaged weights or an overflow bring them about.
class FiniteRows {
 public:
  static constexpr std::int64_t kEmbedding = -1;  // instead of a layer

  /// `vector` must outlive this.
  explicit FiniteRows(const VectorKernels& vector) : vector_(vector) {}

  void begin(std::int64_t rows) { since_.assign(static_cast<std::size_t>(rows), kFinite); }
  /// `values` of a row as `layer` has left them. For any number of threads, each with its own rows.
  void look(std::int64_t row, std::int64_t layer, std::span<const float> values) noexcept {
    std::int64_t& since = since_[static_cast<std::size_t>(row)];
    if (since == kFinite && !vector_.all_finite(values.data(), std::ssize(values))) since = layer;
  }
  /// The layer that made it so, or kEmbedding; nothing if all is well.
  [[nodiscard]] std::optional<std::int64_t> damaged_by(std::int64_t row) const {
    const std::int64_t since = since_[static_cast<std::size_t>(row)];
    return since == kFinite ? std::nullopt : std::optional(since);
  }

 private:
  static constexpr std::int64_t kFinite = -2;
  const VectorKernels& vector_;
  std::vector<std::int64_t> since_;  // [rows]
};

}  // namespace moesaic
