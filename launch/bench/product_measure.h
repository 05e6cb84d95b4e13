#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/gemm_kernel.h"
#include "launch/bench/together.h"
#include "launch/job/runtime.h"
#include "launch/shapes/named_shapes.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// What products take on the nodes of a job, all ranks at work at the same time. All calls are
/// collective, in this order.
class ProductMeasure {
 public:
  /// Weights rotate over `memory`, which no cache is to hold, and over `cached`, which the nearest
  /// caches of a rank's threads hold. All must outlive this.
  ProductMeasure(const Runtime& runtime, const Together& together, std::span<std::byte> memory,
                 std::span<std::byte> cached);

  /// What a call takes, whatever it multiplies; without job_seconds.
  const CallRates& measure_calls();
  /// Seconds of a number of RowOp::gate.
  double measure_gates();
  /// What products with weights in this format take beyond that.
  [[nodiscard]] ProductCurve products(Format format);

 private:
  class ProductRun;
  /// `count` rows, so many of them with each matrix.
  struct Rows {
    std::int64_t count;
    std::int64_t per_matrix;
    RowSource::Element element;
  };
  [[nodiscard]] double on_node() const;
  /// Seconds of a node for one `call` of each rank, less what each takes `besides`.
  [[nodiscard]] double measure(const std::function<void()>& call, double besides) const;
  /// The same of one of the rows, of many.
  [[nodiscard]] double row_seconds(const MatrixShape& shape, Format format, const Rows& rows) const;
  void measure_rows(Format format, ProductRun& whole, ProductCurve& curve) const;
  [[nodiscard]] double besides(const ProductCurve& curve, std::int64_t rows,
                               std::int64_t count) const;

  const Runtime& runtime_;
  const Together& together_;
  std::span<std::byte> memory_;
  std::span<std::byte> cached_;
  CallRates calls_;
  double gate_seconds_ = 0;
};

}  // namespace moesaic
