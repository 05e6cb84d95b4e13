#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/step_decoder.h"
#include "kernels/cpu_features.h"
#include "kernels/packed_matrix.h"

namespace moesaic {

/// Activations as they arrive: rows of `depth` elements, anywhere in memory.
struct RowSource {
  enum class Element { f32, bf16 };
  const std::byte* const* rows = nullptr;  // [num_rows] start of each row, aligned to its element
  std::int64_t num_rows = 0;
  std::int64_t depth = 0;  // K
  Element element = Element::f32;
};

[[nodiscard]] constexpr std::int64_t element_bytes(RowSource::Element element) noexcept {
  return element == RowSource::Element::bf16 ? 2 : 4;
}

/// Rows that pack_rows takes at a time: one AMX tile.
inline constexpr std::int64_t kRowBlock = 16;

/// Terms with which the sums of a product go on: those of another one, of the same kernel, whose
/// matrix has as many panels.
struct TileTerms {
  const std::byte* packed_rows;
  const PackedMatrix* matrix;
};

/// Of one product, at most.
inline constexpr std::size_t kMostTileTerms = 2;

/// Where results go past the caches: rows of f32, whole cache lines (are_whole_lines()).
struct StreamedRows {
  float* data = nullptr;
  std::int64_t stride = 0;  // elements

  [[nodiscard]] StreamedRows from_column(std::int64_t column) const noexcept {
    return {data == nullptr ? nullptr : data + column, stride};
  }
};

/// One product: out[num_rows, num_panels * 16] = rows x panels^T over the whole depth, f32, times
/// all scales; or, with `resume`, of formats without scales, sums that go on from what `out` has: a
/// depth in pieces of whole steps gives the same bits as all of it at once.
struct TileArgs {
  const std::byte* packed_rows =
      nullptr;  // [num_rows] by pack_rows of the same kernel, whole blocks
  std::int64_t num_rows = 0;
  const PackedMatrix* matrix = nullptr;
  std::int64_t first_panel = 0;
  std::int64_t num_panels = 0;
  float* out = nullptr;                // 64-byte aligned
  std::int64_t out_stride = 0;         // elements, a multiple of 16, >= num_panels * 16
  std::byte* scratch = nullptr;        // the kernel's scratch_bytes, 64-byte aligned
  bool resume = false;                 // f32 and bf16 alone
  std::span<const TileTerms> terms{};  // added in turn; of kernels that take_terms
  StreamedRows streamed{};             // by kernels that stream_results; `out` is needed as well
};

/// Weights W [n, k] that a product turns on the way: its columns from k = 32 first on.
struct TurnedSteps {
  const PackedMatrix* matrix;
  std::int64_t first;
};

/// What activations become before they meet weights in int4_group with groups of 128.
enum class Int4Activations {
  bf16,
  int8  ///< with a scale for each token and group
};

/// What one (instruction set, weight format) pair can do. Constant data; one definition a file
/// kernels/cpu/<isa>/<format>.cpp, listed by the build in kernel_list.h.
///
/// Every function gives a row of the result that depends on that row and the weights alone: the
/// same bits for 1 row and for 1,000, wherever the row stands.
struct GemmKernel {
  Isa isa;
  Format format;
  /// int8: a second kernel of int4_group, for groups of 128 alone.
  Int4Activations int4_activations = Int4Activations::bf16;
  const char* name;  // "avx512/bf16"
  /// Bytes of one row in the kernel's own packed form.
  std::size_t (*packed_row_bytes)(std::int64_t depth) noexcept;
  /// Brings one block of up to kRowBlock rows into the packed form. The rows of a product are
  /// blocks of kRowBlock (the last may have fewer); row i's block starts at
  /// i / kRowBlock * kRowBlock * packed_row_bytes(depth), 64-byte aligned. How rows lie within
  /// their block is the kernel's business.
  void (*pack_rows)(const RowSource& source, std::byte* out) noexcept;
  /// What TileArgs::scratch has to have.
  std::int64_t scratch_bytes;
  /// Any num_rows >= 0 and num_panels >= 0.
  void (*tile)(const TileArgs& args) noexcept;
  /// Whether TileArgs::terms are added before sums leave the core.
  bool takes_terms = false;
  /// Whether results of more than kRowBlock rows go to TileArgs::streamed, each while others are
  /// multiplied.
  bool streams_results = false;
  /// `tile` of this instruction set's bf16 kernel, its rows and its scratch, by columns of a matrix
  /// W of this format, whose panels it decodes and turns between its products; scales of W's rows
  /// have no part in it. args.matrix, [32 steps, W.rows] in bf16, has a shape alone. Null: panels
  /// are turned before (transpose_steps()).
  void (*turned_tile)(const TileArgs& args, const TurnedSteps& source) noexcept = nullptr;
  /// Weights as raw lines; null for f32, and where another kernel of the format has it.
  DecodeSteps decode;
};

}  // namespace moesaic
