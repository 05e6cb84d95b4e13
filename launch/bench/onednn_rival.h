#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/format.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {

/// oneDNN's matrix product with weights packed in the way it likes best: the same task as our own
/// kernels have, as far as oneDNN does it. bf16: bf16 x bf16 -> f32; int8: s8 x s8 -> s32, without
/// quantising the rows before or scaling the sums after.
class OneDnnRival {
 public:
  /// Whether this program was built with oneDNN.
  [[nodiscard]] static bool is_built_in() noexcept;
  /// Throws Error{usage} that says what to install if it was not.
  static void require_built_in();

  /// `weights` [columns, depth]: bf16 or int8. Matrices packed for products rotate over `memory`
  /// (64-byte aligned). All must outlive this.
  OneDnnRival(Format format, const MatrixShape& shape, std::span<const std::byte> weights,
              std::span<std::byte> memory);
  ~OneDnnRival();

  /// Gets ready to multiply `input` [rows, depth], of bf16 or int8, in this many threads.
  void prepare(std::span<const std::byte> input, std::int64_t rows, int threads);
  /// One product with the next matrix.
  void run();
  /// Of the last product: [rows, columns], f32 or int32.
  [[nodiscard]] const std::byte* output() const noexcept;
  /// Of one packed matrix.
  [[nodiscard]] std::int64_t packed_bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moesaic
