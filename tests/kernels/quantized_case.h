#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/quantized_rows.h"
#include "kernels/whole_product.h"
#include "tests/kernels/gemm_case.h"

namespace moesaic {

/// Every layout of every quantised format.
[[nodiscard]] std::vector<Layout> quantized_layouts();
/// "int4_group32wide", "nvfp4".
[[nodiscard]] std::string layout_name(const Layout& layout);

/// A matrix of random codes, every one of which its format has, -128 and -8 too, and random scales.
class RandomCodes {
 public:
  RandomCodes(const Layout& layout, std::int64_t num_rows, std::int64_t depth, std::uint64_t seed);

  [[nodiscard]] const QuantizedRows& rows() const { return rows_; }
  [[nodiscard]] const PackedMatrix& matrix() const { return owned_.matrix; }

 private:
  QuantizedRows rows_;
  OwnedMatrix owned_;
};

/// `values` [n, depth] quantised and back.
[[nodiscard]] std::vector<float> quantized_values(const Layout& layout,
                                                  std::span<const float> values,
                                                  std::int64_t depth);

/// What the elements of one column of a product count for, bf16.
[[nodiscard]] std::vector<BFloat16> decoded_column(const PackedMatrix& matrix, std::int64_t column);

/// What a kernel of VDPBF16PS has to give, [num_rows, columns].
[[nodiscard]] std::vector<float> dpbf16_results(const GemmCase& product,
                                                const RandomCodes& weights);
/// What a kernel of int4_group has to give for int8 activations.
[[nodiscard]] std::vector<float> int8_group_results(const GemmCase& product,
                                                    const RandomCodes& weights);

}  // namespace moesaic
