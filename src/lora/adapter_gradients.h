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
/// a unit, and integers are added, so that the sums have the same bits in whatever order and on
/// whatever ranks samples are added. Gradients are those of a loss that is summed over tokens.
class AdapterGradients {
 public:
  /// The unit of few tokens.
  static constexpr double kUnit = 0x1p-44;
  /// With that unit: a sample's gradient that is not below this, or not a number, counts as not
  /// finite; so does a sum that leaves the 64 bits, from twice this on. In proportion with others.
  static constexpr float kLimit = 0x1p18F;
  /// The unit of so many trained tokens: the mean over them is the same part of it, so that there
  /// is as much room for their sum however many they are.
  [[nodiscard]] static double unit_of(std::int64_t trained_tokens) noexcept;

  AdapterGradients(std::vector<AdapterPlace> places, const VectorKernels& vector);

  /// Adds what one sample gives, in the form of the factor or of its rows from `first_row` on.
  /// Threads may add to different factors at the same time.
  void add(std::int32_t adapter, Factor factor, MatrixView<const float> of_one_sample,
           std::int64_t first_row = 0);

  /// Of all elements, for sums over ranks.
  [[nodiscard]] std::span<std::int64_t> sums() noexcept { return sums_.span(); }
  [[nodiscard]] std::span<const std::int64_t> sums() const noexcept { return sums_.span(); }
  [[nodiscard]] std::span<const AdapterPlace> places() const noexcept { return places_; }
  /// Whether anything has been added since clear(): what has not is zero.
  [[nodiscard]] bool touched(std::int32_t adapter, Factor factor) const;
  /// Whether all its sums are finite.
  [[nodiscard]] bool is_finite(std::int32_t adapter) const;
  /// What is added from now on is rounded to multiples of `unit`, a power of two.
  void clear(ThreadPool& pool, double unit = kUnit);
  [[nodiscard]] double unit() const noexcept { return unit_; }

  /// Whether a sum of the factor is greater than `limit`, with either sign.
  [[nodiscard]] bool any_beyond(const FactorPlace& factor, std::int64_t limit) const;
  /// Of the factor's sums, in units: GradientKernels says in which order.
  [[nodiscard]] double sum_of_squares(const FactorPlace& factor) const;

  /// Where the unit is kUnit.
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
  double unit_ = kUnit;
};

}  // namespace moesaic
