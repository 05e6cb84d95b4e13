#pragma once

#include <algorithm>

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// All of `rows` in the kernel's packed form.
inline void pack_float_rows(const GemmKernel& kernel, MatrixView<const float> rows,
                            Buffer<std::byte>& packed) {
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(rows.cols()));
  packed.reserve(rows.rows() * row_bytes);
  const std::byte* pointers[kRowBlock];
  for (std::int64_t first = 0; first < rows.rows(); first += kRowBlock) {
    const std::int64_t count = std::min(kRowBlock, rows.rows() - first);
    for (std::int64_t i = 0; i < count; ++i) {
      pointers[i] = reinterpret_cast<const std::byte*>(rows.row(first + i).data());
    }
    kernel.pack_rows({.rows = pointers, .num_rows = count, .depth = rows.cols()},
                     packed.data() + first * row_bytes);
  }
}

}  // namespace moesaic
