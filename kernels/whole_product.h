#pragma once

#include <span>

#include "base/buffer.h"
#include "kernels/gemm_kernel.h"
#include "kernels/packed_matrix.h"

namespace moesaic {

/// A packed matrix and the memory it points into.
struct OwnedMatrix {
  Buffer<std::byte> panels;
  PackedMatrix matrix;
};

/// Packs `values` [rows, depth], quantised if the layout says so. In one thread: for self-tests and
/// benchmarks.
[[nodiscard]] OwnedMatrix pack_matrix(const Layout& layout, std::span<const float> values,
                                      std::int64_t rows, std::int64_t depth);

/// All rows of `source` in the kernel's packed form.
[[nodiscard]] Buffer<std::byte> pack_all_rows(const GemmKernel& kernel, const RowSource& source);

/// source x matrix^T in one thread: [source.num_rows, matrix.num_panels() * 16].
[[nodiscard]] Buffer<float> multiply(const GemmKernel& kernel, const RowSource& source,
                                     const PackedMatrix& matrix);

}  // namespace moesaic
