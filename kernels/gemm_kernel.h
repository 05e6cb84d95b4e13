#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu_features.h"
#include "kernels/format.h"

namespace moesaic {

/// Activations as they arrive: rows of `depth` elements, anywhere in memory.
struct RowSource {
  enum class Element { f32, bf16 };
  const std::byte* const* rows = nullptr;  // [num_rows] start of each row, aligned to its element
  std::int64_t num_rows = 0;
  std::int64_t depth = 0;  // K
  Element element = Element::f32;
};

/// One product: out[num_rows, num_panels * 16] = rows x panels^T over the whole depth, f32.
struct TileArgs {
  const std::byte* packed_rows = nullptr;  // made by pack_rows of the same kernel, [num_rows]
  std::int64_t num_rows = 0;
  const std::byte* panels = nullptr;  // consecutive packed panels of one matrix
  std::int64_t num_panels = 0;
  std::int64_t depth = 0;  // K of the matrix, before padding
  float* out = nullptr;
  std::int64_t out_stride = 0;  // elements, >= num_panels * 16
};

/// What one (instruction set, weight format) pair can do. Constant data; one definition a file
/// kernels/cpu/<isa>/<format>.cpp, listed by the build in kernel_table.inc.
///
/// Every function gives a row of the result that depends on that row and the weights alone: the
/// same bits for 1 row and for 1,000, wherever the row stands.
struct GemmKernel {
  Isa isa;
  Format format;
  const char* name;  // "avx512/bf16"
  /// Bytes of one row in the kernel's own packed form.
  std::size_t (*packed_row_bytes)(std::int64_t depth) noexcept;
  /// Brings rows into the packed form; row i starts at out + i * packed_row_bytes(depth), 64-byte
  /// aligned.
  void (*pack_rows)(const RowSource& source, std::byte* out) noexcept;
  /// Rows are not trimmed to a block: any num_rows >= 0 and num_panels >= 0.
  void (*tile)(const TileArgs& args) noexcept;
};

}  // namespace moesaic
