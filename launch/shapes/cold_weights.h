#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/packed_matrix.h"
#include "kernels/quantized_rows.h"

namespace moesaic {

/// `count` numbers of a normal distribution with this deviation (nearly), the same for a seed.
[[nodiscard]] std::vector<float> normal_numbers(std::int64_t count, float deviation,
                                                std::uint64_t seed);

/// Bytes of a packed matrix [rows, depth].
[[nodiscard]] std::int64_t matrix_bytes(const Layout& layout, std::int64_t rows,
                                        std::int64_t depth);

/// Random weights, quantised and packed: some rows of a matrix, of which any number of matrices can
/// be made that repeat them.
class SampleWeights {
 public:
  /// Rows after which a matrix repeats itself.
  static constexpr std::int64_t kRows = 256;

  SampleWeights(const Layout& layout, std::int64_t depth, std::uint64_t seed = 1);

  [[nodiscard]] const Layout& layout() const noexcept { return matrix_.layout; }
  [[nodiscard]] std::int64_t depth() const noexcept { return matrix_.depth; }
  /// What the packed weights stand for [kRows, depth].
  [[nodiscard]] std::span<const float> values() const noexcept { return values_; }
  /// The codes that are packed (not of f32 and bf16).
  [[nodiscard]] const QuantizedRows& codes() const noexcept { return codes_; }
  /// Bytes of a matrix of `rows` rows.
  [[nodiscard]] std::int64_t bytes(std::int64_t rows) const;
  /// Writes its panels to `panels` (64-byte aligned) and describes it.
  [[nodiscard]] PackedMatrix write_matrix(std::int64_t rows, std::byte* panels) const;

 private:
  Buffer<std::byte> panels_;
  PackedMatrix matrix_;
  std::vector<float> values_;
  QuantizedRows codes_;
};

/// Takes things in turn so that neighbours do not follow each other, if there are enough: what a
/// CPU fetches beyond the end of one is not of the next.
class Rotation {
 public:
  Rotation() = default;
  explicit Rotation(std::size_t count);

  [[nodiscard]] std::size_t next() noexcept { return at_ = (at_ + stride_) % count_; }

 private:
  std::size_t count_ = 1;
  std::size_t stride_ = 1;  // has no factor in common with the count
  std::size_t at_ = 0;
};

/// Equal matrices, together larger than any cache if the memory is, that are used in turn: none is
/// in a cache when its turn comes.
class ColdMatrices {
 public:
  /// Fills `memory` with as many matrices of `rows` rows as it has room for. Throws Error{usage} if
  /// that is not one.
  ColdMatrices(const SampleWeights& weights, std::int64_t rows, std::span<std::byte> memory,
               ThreadPool& pool);

  [[nodiscard]] std::int64_t count() const noexcept { return std::ssize(matrices_); }
  [[nodiscard]] const PackedMatrix& next() { return matrices_[rotation_.next()]; }

 private:
  std::vector<PackedMatrix> matrices_;
  Rotation rotation_;
};

}  // namespace moesaic
