#define MOESAIC_RICH_AVX512
#include <algorithm>

#include "kernels/cpu/amx/raw_tiles.h"
#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/group_bytes.h"
#include "kernels/cpu/tile_environment.h"

// A row of a B tile has the codes less zero points of 16 columns and of four k that lie in one
// parity of the packed words: 0, 4, 8, 12 of a half, or those 1, 2 or 3 later. A group is two
// tiles. Packed rows are blocks of 16, the last with fewer: [tiles][rows of the block][64 bytes],
// then ByteGroup[rows][groups]; a block of one row is what the AVX-512 kernel reads.

namespace moesaic {
namespace {

constexpr std::int64_t kGroupSteps = kByteGroupDepth / kStepDepth;
constexpr std::int64_t kGroupTiles = 2;
/// Groups that are decoded at a time, of two panels: they stay in the L1 cache while all rows pass.
constexpr std::int64_t kChunkGroups = 4;
constexpr std::int64_t kChunkBytes = kChunkGroups * kGroupTiles * kTileBytes;
/// int32 sums of two tiles of rows by two panels.
constexpr std::int64_t kSumStride = 2 * kPanelColumns;
constexpr std::int64_t kSumBytes = 2 * kRowBlock * kSumStride * 4;

/// Two blocks of packed rows, or one.
struct RowPair {
  std::int64_t first;
  std::int64_t count;

  [[nodiscard]] std::int64_t rows(std::int64_t block) const {
    return std::clamp<std::int64_t>(count - block * kRowBlock, 0, kRowBlock);
  }
};

/// A panel, or two, and some groups of them.
struct Chunk {
  std::int64_t panel;  // counts from args.first_panel
  std::int64_t panels;
  std::int64_t first;
  std::int64_t groups;
};

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

[[gnu::noinline]] void pack_all_rows(const RowSource& source, std::byte* out) {
  const std::int64_t num_groups = byte_group_count(source.depth);
  auto* groups = reinterpret_cast<ByteGroup*>(out + source.num_rows * num_groups * kByteGroupDepth);
  for (std::int64_t row = 0; row < source.num_rows; ++row, groups += num_groups) {
    pack_group_row(source, row, out + row * 64, static_cast<std::size_t>(source.num_rows) * 64,
                   groups);
  }
}

/// The tiles of one group; steps beyond the last are zeros.
void decode_group(const Int4Panel& panel, std::int64_t group, std::int64_t num_steps,
                  std::byte* out) {
  const __m512i low = _mm512_set1_epi8(0x0f);
  const __m512i zeros = _mm512_mullo_epi32(panel.zeros(group), _mm512_set1_epi32(0x01010101));
  for (std::int64_t step = group * kGroupSteps; step < (group + 1) * kGroupSteps; ++step) {
    if (step >= num_steps) {
      std::fill_n(out, kTileBytes / 2, std::byte{0});
      out += kTileBytes / 2;
      continue;
    }
    prefetch_lines(panel.codes(step) + kPrefetchBytes, int4_group_format::kStepBytes / 64);
    for (int half = 0; half < 2; ++half) {
      __m512i left = _mm512_loadu_si512(panel.codes(step) + half * 128);
      __m512i right = _mm512_loadu_si512(panel.codes(step) + half * 128 + 64);
      for (int line = 0; line < 4; line += 2, out += 128) {
        const __m512i left_codes = _mm512_and_si512(left, low);
        const __m512i right_codes = _mm512_and_si512(right, low);
        const __m512i even = every_other(left_codes, right_codes, 0);
        const __m512i odd = every_other(left_codes, right_codes, 1);
        _mm512_store_si512(out, _mm512_sub_epi8(even, zeros));
        _mm512_store_si512(out + 64, _mm512_sub_epi8(odd, zeros));
        left = _mm512_srli_epi16(left, 4);
        right = _mm512_srli_epi16(right, 4);
      }
    }
  }
}

void decode_chunk(const TileArgs& args, const Chunk& chunk, std::byte* out) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  for (std::int64_t p = 0; p < chunk.panels; ++p, out += kChunkBytes) {
    const Int4Panel panel(matrix, args.first_panel + chunk.panel + p);
    for (std::int64_t i = 0; i < chunk.groups; ++i) {
      prefetch_lines(panel.scales_at(chunk.first + i) + 2 * matrix.panel_stride(), 1);
      decode_group(panel, chunk.first + i, steps, out + i * kGroupTiles * kTileBytes);
    }
  }
}

/// Adds the sums of one group, times their scales, to the results of some rows.
void add_group(const TileArgs& args, const RowPair& pair, const Chunk& chunk, std::int64_t group,
               const std::byte* sums) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t num_groups = byte_group_count(matrix.depth);
  for (std::int64_t p = 0; p < chunk.panels; ++p) {
    const __m512 scales = Int4Panel(matrix, args.first_panel + chunk.panel + p).scales(group);
    for (std::int64_t r = 0; r < pair.count; ++r) {
      const std::int64_t block = r / kRowBlock;
      const std::byte* packed =
          args.packed_rows + (pair.first + block * kRowBlock) *
                                 static_cast<std::int64_t>(group_row_bytes(matrix.depth));
      const auto* groups = reinterpret_cast<const ByteGroup*>(
          packed + pair.rows(block) * num_groups * kByteGroupDepth);
      const float row_scale = groups[r % kRowBlock * num_groups + group].scale;
      float* out =
          args.out + (pair.first + r) * args.out_stride + (chunk.panel + p) * kPanelColumns;
      const __m512 total = group == 0 ? _mm512_setzero_ps() : _mm512_load_ps(out);
      const __m512i sum = _mm512_load_si512(sums + (r * kSumStride + p * kPanelColumns) * 4);
      const __m512 factors = _mm512_mul_ps(scales, _mm512_set1_ps(row_scale));
      _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factors, total));
    }
  }
}

MOESAIC_END_TARGET

void pack_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and quotients round as MXCSR says
  pack_all_rows(source, out);
}

/// The tiles of a group, decoded at `weights`, times one or two tiles of rows.
void multiply_group(const TileArgs& args, const RowPair& pair, std::int64_t panels,
                    std::int64_t group, const std::byte* weights, std::byte* sums) {
  StepBlock block{
      .rows = {}, .row_step = {}, .steps = kGroupTiles, .out = sums, .out_stride = kSumStride * 4};
  RawWeights tiles{.weights = weights, .stride = kChunkBytes, .ahead = weights, .lines = 0};
  const auto row_bytes = static_cast<std::int64_t>(group_row_bytes(args.matrix->depth));
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t tile_bytes = pair.rows(i) * 64;
    block.row_step[i] = static_cast<std::size_t>(tile_bytes);
    block.rows[i] = args.packed_rows + (pair.first + i * kRowBlock) * row_bytes +
                    group * kGroupTiles * tile_bytes;
  }
  using Product = SignedByteProduct;
  if (pair.count > kRowBlock) {
    panels == 2 ? multiply_tiles<Product, 2, 2>(block, Before::zero, tiles)
                : multiply_tiles<Product, 2, 1>(block, Before::zero, tiles);
  } else {
    panels == 2 ? multiply_tiles<Product, 1, 2>(block, Before::zero, tiles)
                : multiply_tiles<Product, 1, 1>(block, Before::zero, tiles);
  }
}

/// All rows by a chunk. LDTILECFG takes longer than ten products: only where something changes.
void multiply_chunk(const TileArgs& args, const Chunk& chunk, std::int64_t& configured) {
  std::byte* const sums = args.scratch + 2 * kChunkBytes;
  for (std::int64_t row = 0; row < args.num_rows; row += 2 * kRowBlock) {
    const RowPair pair{row, std::min(2 * kRowBlock, args.num_rows - row)};
    if (pair.count != configured) {
      configure(static_cast<int>(pair.rows(0)), static_cast<int>(pair.rows(1)));
      configured = pair.count;
    }
    for (std::int64_t i = 0; i < chunk.groups; ++i) {
      multiply_group(args, pair, chunk.panels, chunk.first + i,
                     args.scratch + i * kGroupTiles * kTileBytes, sums);
      add_group(args, pair, chunk, chunk.first + i, sums);
    }
  }
}

void multiply_by_tiles(const TileArgs& args) {
  const std::int64_t num_groups = byte_group_count(args.matrix->depth);
  std::int64_t configured = 0;  // for as many rows
  for (std::int64_t panel = 0; panel < args.num_panels; panel += 2) {
    for (std::int64_t first = 0; first < num_groups; first += kChunkGroups) {
      const Chunk chunk{panel, std::min<std::int64_t>(2, args.num_panels - panel), first,
                        std::min(kChunkGroups, num_groups - first)};
      decode_chunk(args, chunk, args.scratch);
      multiply_chunk(args, chunk, configured);
    }
  }
  release_tiles();
}

/// One row would leave the tiles empty.
[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  if (args.num_rows == 1) {
    for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
      multiply_byte_groups<1>(args, panel, 0);
    }
  } else {
    multiply_by_tiles(args);
  }
  scale_columns(args);
}

void tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel amx_int4_group_int8_kernel;
constinit const GemmKernel amx_int4_group_int8_kernel{
    .isa = Isa::amx,
    .format = Format::int4_group,
    .int4_activations = Int4Activations::int8,
    .name = "amx/int4_group_int8",
    .packed_row_bytes = group_row_bytes,
    .pack_rows = pack_rows,
    .scratch_bytes = 2 * kChunkBytes + kSumBytes,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
