#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <vector>

#include "base/rounding.h"
#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/codecs/grid_scaled.h"

namespace moesaic {
namespace {

/// Rows that one panel of a packed matrix holds share the scales of a block.
constexpr std::int64_t kPanelRows = kPanelColumns;

class Fp8Codec final : public GridScaledCodec {
 public:
  using GridScaledCodec::GridScaledCodec;

 private:
  void fill_codes(std::int64_t row, std::uint8_t* out) const override {
    std::memcpy(out, codes().bytes.data() + row * cols(), static_cast<std::size_t>(cols()));
  }
};

/// Without the dimensions of 1 that ModelOpt puts into [N/128, 1, K/128, 1].
std::vector<std::int64_t> grid_shape(const StoredTensor& scale) {
  if (scale.shape.size() == 4 && scale.shape[1] == 1 && scale.shape[3] == 1) {
    return {scale.shape[0], scale.shape[2]};
  }
  if (scale.num_elements() == 1) return {1, 1};
  return scale.shape;
}

std::vector<BlockSize> known_blocks(const StoredMatrix& matrix) {
  const std::vector<BlockSize>& blocks = matrix.config().blocks;
  return blocks.empty() ? std::vector{kUsualBlock} : blocks;
}

/// The size of blocks stands in the configuration only: [2, 2] scales of [192, 192] weights may be
/// of blocks of 128 (the last ones partial) or of 96.
std::optional<BlockSize> find_block(const StoredMatrix& matrix, const StoredTensor& scale) {
  const std::vector<std::int64_t> shape = grid_shape(scale);
  for (const BlockSize block : known_blocks(matrix)) {
    if (shape ==
        std::vector{divide_up(matrix.rows(), block.rows), divide_up(matrix.cols(), block.cols)}) {
      return block;
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse_shape(const StoredMatrix& matrix, const StoredTensor& scale) {
  const BlockSize block = known_blocks(matrix).front();
  scale.refuse(fmt::format(
      "should hold one scale for weights [{}, {}], one a row, or [{}, {}] for blocks of {} x {}",
      matrix.rows(), matrix.cols(), divide_up(matrix.rows(), block.rows),
      divide_up(matrix.cols(), block.cols), block.rows, block.cols));
}

/// The group of the layout that blocks fall into without a remainder.
Layout block_layout(const StoredMatrix& matrix, const StoredTensor& scale, BlockSize block) {
  const bool one_row = block.rows >= matrix.rows();
  const bool one_col = block.cols >= matrix.cols();
  const bool rows_fit =
      one_row || (block.rows % kPanelRows == 0 && matrix.first_row() % kPanelRows == 0);
  if (!rows_fit || (!one_col && block.cols % 32 != 0)) {
    scale.refuse(fmt::format(
        "is of blocks of {} x {} (from row {} on), which is not read: blocks must begin "
        "at multiples of 16 rows and 32 columns",
        block.rows, block.cols, matrix.first_row()));
  }
  const bool narrow = block.cols % 32 == 0 && block.cols % 128 != 0;
  return {Format::fp8_block, narrow ? 32 : 128};
}

bool is_one_a_row(const StoredMatrix& matrix, const StoredTensor& scale) {
  return scale.shape == std::vector{matrix.rows(), std::int64_t{1}} ||
         scale.shape == std::vector{matrix.rows()};
}

}  // namespace

CodecPtr make_fp8_codec(const StoredMatrix& matrix, const StoredTensor& weight) {
  const std::int64_t rows = matrix.rows();
  const std::int64_t cols = matrix.cols();
  weight.require_shape({rows, cols});
  const StoredTensor scale = find_scale(matrix, weight);
  if (is_exponent_scale(scale.dtype()) && scale.shape == std::vector{rows, divide_up(cols, 32)}) {
    return make_mxfp8_codec(matrix, weight, scale);
  }
  const auto codec = [&](Layout layout, const ScaleGrid& grid) {
    return std::make_shared<Fp8Codec>(matrix, layout, weight, grid);
  };
  if (is_one_a_row(matrix, scale)) {
    return codec({Format::fp8_channel}, {ScaleTensor(scale, rows, 1), 1, cols});
  }
  const bool single = scale.num_elements() == 1;
  // Where blocks are in use, a scale that is alone is that of a grid of one block.
  const auto block =
      single && matrix.config().blocks.empty() ? std::nullopt : find_block(matrix, scale);
  if (block) {
    const ScaleTensor scales(scale, divide_up(rows, block->rows), divide_up(cols, block->cols));
    return codec(block_layout(matrix, scale, *block), {scales, block->rows, block->cols});
  }
  if (!single) refuse_shape(matrix, scale);
  return codec({Format::fp8_channel}, {ScaleTensor(scale, 1, 1), rows, cols});
}

}  // namespace moesaic
