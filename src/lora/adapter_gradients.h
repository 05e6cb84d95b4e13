#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// The two matrices of an adapter: x A^T, then B^T.
enum class Factor { a, b };

/// Elements of one factor among all of an AdapterSet's masters, row by row.
struct FactorPlace {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  [[nodiscard]] std::int64_t size() const noexcept { return rows * cols; }
};

/// Where an adapter's gradients are summed. Two adapters may have one A.
struct AdapterPlace {
  FactorPlace a;  // [rank, in]
  FactorPlace b;  // [out, rank]
};

/// Sums of the gradients of a rank's adapters over samples, one for each master element and in
/// their order. They are kept in 64-bit fixed point: a sample's gradient is rounded to multiples of
/// kUnit, and integers are added, so that the sums have the same bits in whatever order and on
/// whatever ranks samples are added. Gradients are those of a loss that is summed over tokens.
class AdapterGradients {
 public:
  static constexpr double kUnit = 0x1p-44;
  /// A sample's gradient that is not below this, or not a number, counts as not finite; so does a
  /// sum that leaves the 64 bits, from twice this on.
  static constexpr float kLimit = 0x1p18F;

  AdapterGradients(std::vector<AdapterPlace> places, const VectorKernels& vector);

  /// Adds what one sample gives, in the form of the factor. Threads may add to different factors at
  /// the same time.
  void add(std::int32_t adapter, Factor factor, MatrixView<const float> of_one_sample);

  /// Of all elements, for sums over ranks.
  [[nodiscard]] std::span<std::int64_t> sums() noexcept { return sums_.span(); }
  [[nodiscard]] std::span<const std::int64_t> sums() const noexcept { return sums_.span(); }
  [[nodiscard]] std::span<const AdapterPlace> places() const noexcept { return places_; }
  /// Whether anything has been added since clear(): what has not is zero.
  [[nodiscard]] bool touched(std::int32_t adapter, Factor factor) const;
  /// Whether all its sums are finite.
  [[nodiscard]] bool is_finite(std::int32_t adapter) const;
  void clear(ThreadPool& pool);

  /// Whether a sum of the factor is greater than `limit`, with either sign.
  [[nodiscard]] bool any_beyond(const FactorPlace& factor, std::int64_t limit) const;
  /// Of the factor's sums, in units: GradientKernels says in which order.
  [[nodiscard]] double sum_of_squares(const FactorPlace& factor) const;

  [[nodiscard]] static double value(std::int64_t sum) noexcept {
    return static_cast<double>(sum) * kUnit;
  }

 private:
  enum State : std::uint8_t { kUntouched, kTouched, kNotFinite };

  [[nodiscard]] const FactorPlace& place(std::int32_t adapter, Factor factor) const;
  [[nodiscard]] static std::size_t state_index(std::int32_t adapter, Factor factor);

  std::vector<AdapterPlace> places_;
  const GradientKernels* kernels_;
  Buffer<std::int64_t> sums_;
  std::vector<State> states_;  // [adapters * 2]
};

}  // namespace moesaic
