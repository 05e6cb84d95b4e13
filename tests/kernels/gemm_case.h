#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/gemm_kernel.h"
#include "src/base/buffer.h"
#include "src/base/dtype.h"

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

  /// The packed panels of w.
  [[nodiscard]] Buffer<std::byte> pack_weights(Format format) const;
  /// The kernel's packed form of x; `element` says how the rows arrive.
  [[nodiscard]] Buffer<std::byte> pack_rows(const GemmKernel& kernel,
                                            RowSource::Element element) const;
  /// x w^T, [num_rows, columns].
  [[nodiscard]] std::vector<float> run(const GemmKernel& kernel,
                                       RowSource::Element element = RowSource::Element::f32) const;
};

/// A case whose matrices are filled from `draw`.
[[nodiscard]] GemmCase make_gemm_case(std::int64_t num_rows, std::int64_t num_panels,
                                      std::int64_t depth, const std::function<float()>& draw);

/// The bits of a result, of which NaNs have one kind only.
[[nodiscard]] std::uint32_t result_bits(float value);

}  // namespace moesaic
