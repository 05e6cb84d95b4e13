#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "kernels/gemm_kernel.h"
#include "kernels/whole_product.h"
#include "tests/kernels/guarded_array.h"

namespace moesaic {

/// A product's operands as plain matrices, whole panels wide, and runs of kernels on them.
struct GemmCase {
  std::int64_t num_rows = 0;
  std::int64_t num_panels = 0;
  std::int64_t depth = 0;
  std::vector<float> x;  // [num_rows, depth]
  std::vector<float> w;  // [num_panels * 16, depth]

  [[nodiscard]] std::int64_t columns() const { return num_panels * kPanelColumns; }
  /// Row `row` of x or w, rounded to bf16.
  [[nodiscard]] std::vector<BFloat16> x_bf16(std::int64_t row) const;
  [[nodiscard]] std::vector<BFloat16> w_bf16(std::int64_t column) const;

  /// w, packed; quantised if the layout says so.
  [[nodiscard]] OwnedMatrix pack_weights(const Layout& layout) const;
  /// The first `count` rows of x, as kernels get them; `element` says in which form.
  struct Rows {
    std::unique_ptr<GuardedArray<std::byte>> memory;  // the last row ends where it does
    std::vector<const std::byte*> pointers;
    RowSource source;
  };
  [[nodiscard]] Rows rows(std::int64_t count, RowSource::Element element) const;
  /// x w^T, [num_rows, columns].
  [[nodiscard]] std::vector<float> run(const GemmKernel& kernel,
                                       RowSource::Element element = RowSource::Element::f32) const;
  [[nodiscard]] std::vector<float> run(const GemmKernel& kernel, const PackedMatrix& weights,
                                       RowSource::Element element = RowSource::Element::f32) const;
};

/// A case whose matrices are filled from `draw`.
[[nodiscard]] GemmCase make_gemm_case(std::int64_t num_rows, std::int64_t num_panels,
                                      std::int64_t depth, const std::function<float()>& draw);

/// Calls `tile` for the first rows and panels of a case. Packed rows, panels, scratch and results
/// lie in memory that ends at a page without access: sanitizers do not watch all kernels. What the
/// kernel has to write first is NaNs. Results [num_rows, num_panels * 16]; fails the test if
/// anything else was written.
[[nodiscard]] std::vector<float> run_part(const GemmKernel& kernel, const RowSource& source,
                                          const PackedMatrix& weights, std::int64_t num_panels,
                                          const StreamedRows& streamed = {});

/// The bits of a result, of which NaNs have one kind only.
[[nodiscard]] std::uint32_t result_bits(float value);

}  // namespace moesaic
