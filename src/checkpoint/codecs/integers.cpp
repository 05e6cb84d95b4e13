#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/codecs/grid_scaled.h"
#include "src/checkpoint/codecs/int4_groups.h"
#include "src/checkpoint/codecs/nibbles.h"

namespace moesaic {
namespace {

/// int8 with a scale a row. Stored bytes may be 128 more than their value.
class Int8Codec final : public GridScaledCodec {
 public:
  Int8Codec(const StoredMatrix& matrix, const StoredTensor& codes, const ScaleGrid& grid,
            bool is_offset)
      : GridScaledCodec(matrix, Layout{Format::int8}, codes, grid), is_offset_(is_offset) {}

 private:
  void fill_codes(std::int64_t row, std::uint8_t* out) const override {
    std::memcpy(out, codes().row_bytes(row, row + 1).data(), static_cast<std::size_t>(cols()));
    if (!is_offset_) return;
    for (std::int64_t k = 0; k < cols(); ++k) out[k] ^= 0x80;
  }

  bool is_offset_;
};

/// What every form of 4-bit integers with scales of groups is made from.
struct Int4Parts {
  StoredTensor codes;
  ScaleGrid grid;
  std::vector<std::int32_t> order;
  std::optional<StoredTensor> zeros;
};

/// 4-bit integers with a scale a group, the scales in the order of the rows.
class Int4Codec : public GridScaledCodec {
 public:
  Int4Codec(const StoredMatrix& matrix, const Layout& layout, Int4Parts parts)
      : GridScaledCodec(matrix, layout, parts.codes, parts.grid) {
    set_order(std::move(parts.order));
  }
};

/// compressed-tensors: nibbles, the even k low, 8 more than their value. The zero points too,
/// packed along the rows: I32 [N/8, groups].
class PackedInt4Codec final : public Int4Codec {
 public:
  PackedInt4Codec(const StoredMatrix& matrix, const Layout& layout, const Int4Parts& parts)
      : Int4Codec(matrix, layout, parts), zeros_(parts.zeros) {}

  void for_each_bytes(const RowRange& range, const BytesCall& call) const override {
    Int4Codec::for_each_bytes(range, call);
    if (!zeros_ || range.count == 0) return;
    call(zeros_->row_bytes(range.first / 8, (range.end() - 1) / 8 + 1));
  }

 private:
  void fill(const RowRange& range, QuantizedRows& out) const override {
    Int4Codec::fill(range, out);
    if (!zeros_) return;
    const std::int64_t stored_groups = zeros_->shape[1];
    for (std::int64_t i = 0; i < range.count; ++i) {
      const std::int64_t row = range.at(i);
      for (std::int64_t g = 0; g < num_groups(); ++g) {
        const std::int64_t stored = grid().col(g * group());
        const auto word = zeros_->load<std::uint32_t>(row / 8 * stored_groups + stored);
        out.zeros[out.group_index(i, g)] = static_cast<std::uint8_t>(word >> (row % 8 * 4) & 15U);
      }
    }
  }
  void fill_codes(std::int64_t row, std::uint8_t* out) const override {
    unpack_nibbles(codes().row_bytes(row, row + 1).data(), cols(), out);
  }

  std::optional<StoredTensor> zeros_;
};

/// compressed-tensors: integers from -8 to 7, one a byte.
class ByteInt4Codec final : public Int4Codec {
 public:
  using Int4Codec::Int4Codec;

 private:
  void fill_codes(std::int64_t row, std::uint8_t* out) const override {
    const std::byte* const stored = codes().row_bytes(row, row + 1).data();
    for (std::int64_t k = 0; k < cols(); ++k) {
      out[k] = static_cast<std::uint8_t>(std::to_integer<unsigned>(stored[k]) + 8U);
      if (out[k] <= 15) continue;
      codes().refuse(
          fmt::format("holds {} at row {}, k {}: integers of more than 4 bits need one scale a row",
                      static_cast<int>(static_cast<std::int8_t>(out[k] - 8)), row, k));
    }
  }
};

/// ModelOpt: byte (i, k) has row 2i low and row 2i + 1 high, in two's complement.
class RowPairInt4Codec final : public Int4Codec {
 public:
  using Int4Codec::Int4Codec;

 private:
  void fill_codes(std::int64_t row, std::uint8_t* out) const override {
    const std::byte* const stored = codes().row_bytes(row / 2, row / 2 + 1).data();
    const std::int64_t shift = row % 2 * 4;
    for (std::int64_t k = 0; k < cols(); ++k) {
      out[k] =
          static_cast<std::uint8_t>((std::to_integer<unsigned>(stored[k]) >> shift ^ 8U) & 15U);
    }
  }
};

/// `weight_scale`: one for all, [N] or [N, groups].
ScaleGrid find_scales(const StoredMatrix& matrix) {
  const StoredTensor scales = matrix.at("weight_scale");
  if (!is_float_scale(scales.dtype())) scales.refuse("should hold scales of type F32, BF16 or F16");
  if (scales.num_elements() == 1) {
    return {ScaleTensor(scales, 1, 1), matrix.rows(), matrix.cols()};
  }
  if (scales.shape.size() == 1) scales.require_shape({matrix.rows()});
  const std::int64_t groups = scales.shape.size() < 2 ? 1 : scales.shape[1];
  if (scales.shape.size() != 1) scales.require_shape({matrix.rows(), groups});
  return {ScaleTensor(scales, matrix.rows(), groups), 1,
          even_groups(scales, groups, matrix.cols()).size};
}

/// A codec of 4-bit integers whose groups are even, or as `weight_g_idx` says.
template <typename Codec>
CodecPtr make_int4(const StoredMatrix& matrix, Int4Parts parts) {
  StoredGroups groups{parts.grid.block_cols, {}};
  const auto g_idx = matrix.find("weight_g_idx");
  const StoredTensor& scales = parts.grid.scales.tensor();
  if (auto found =
          g_idx ? indexed_groups(*g_idx, parts.grid.scales.cols(), matrix.cols()) : std::nullopt) {
    groups = *std::move(found);
  }
  const Layout layout = int4_group_layout(scales, groups, matrix.cols(), !parts.zeros.has_value());
  parts.grid.block_cols = groups.size;
  parts.order = std::move(groups.order);
  return std::make_shared<Codec>(matrix, layout, std::move(parts));
}

/// Symmetric quantisation stores none, or nothing but zeros.
void refuse_zero_points(const StoredMatrix& matrix) {
  const auto zeros = matrix.find("weight_zero_point");
  if (!zeros) return;
  const bool all_zero =
      std::ranges::all_of(zeros->bytes, [](std::byte byte) { return byte == std::byte{0}; });
  if (!all_zero) {
    zeros->refuse("gives zero points to integers that are not packed, which is not read");
  }
}

std::optional<StoredTensor> find_packed_zeros(const StoredMatrix& matrix, const ScaleGrid& grid) {
  auto zeros = matrix.find("weight_zero_point");
  if (zeros) zeros->require_form(DType::i32, {(matrix.rows() + 7) / 8, grid.scales.cols()});
  return zeros;
}

void check_weight_shape(const StoredMatrix& matrix) {
  const auto shape = matrix.find("weight_shape");
  if (!shape) return;
  const bool wide = shape->dtype() == DType::i64;
  if (!wide && shape->dtype() != DType::i32) shape->refuse("should be I64 or I32");
  shape->require_shape({2});
  const auto at = [&](std::int64_t index) {
    return wide ? shape->load<std::int64_t>(index) : shape->load<std::int32_t>(index);
  };
  if (at(0) == matrix.rows() && at(1) == matrix.cols()) return;
  shape->refuse(fmt::format("says [{}, {}], config.json asks for [{}, {}]", at(0), at(1),
                            matrix.rows(), matrix.cols()));
}

CodecPtr make_packed_int8(const StoredMatrix& matrix, const StoredTensor& packed) {
  const ScaleGrid grid = find_scales(matrix);
  if (grid.scales.cols() != 1) {
    grid.scales.tensor().refuse("gives 8-bit integers a scale a group; only one a row is read");
  }
  if (const auto zeros = matrix.find("weight_zero_point")) {
    zeros->refuse("gives zero points to 8-bit integers, which is not read");
  }
  return std::make_shared<Int8Codec>(matrix, packed, grid, true);
}

}  // namespace

CodecPtr make_plain_integer_codec(const StoredMatrix& matrix, const StoredTensor& weight) {
  weight.require_form(DType::i8, {matrix.rows(), matrix.cols()});
  refuse_zero_points(matrix);
  const ScaleGrid grid = find_scales(matrix);
  if (grid.scales.cols() == 1) {
    return std::make_shared<Int8Codec>(matrix, weight, grid, false);
  }
  return make_int4<ByteInt4Codec>(matrix, {weight, grid, {}, std::nullopt});
}

CodecPtr make_packed_integer_codec(const StoredMatrix& matrix, const StoredTensor& packed) {
  check_weight_shape(matrix);
  const auto words = [&](std::int64_t bits) { return (matrix.cols() * bits + 31) / 32; };
  const std::int64_t found = packed.shape.size() == 2 ? packed.shape[1] : 0;
  if (found == words(8) && found != words(4)) {
    packed.require_shape({matrix.rows(), words(8)});
    return make_packed_int8(matrix, packed);
  }
  if (found != words(4)) {
    packed.refuse(
        fmt::format("should have {} words a row (4 bits) or {} (8 bits)", words(4), words(8)));
  }
  packed.require_shape({matrix.rows(), words(4)});
  const ScaleGrid grid = find_scales(matrix);
  return make_int4<PackedInt4Codec>(matrix, {packed, grid, {}, find_packed_zeros(matrix, grid)});
}

CodecPtr make_row_pair_codec(const StoredMatrix& matrix, const StoredTensor& weight) {
  if (matrix.rows() % 2 != 0) weight.refuse("cannot hold an odd number of rows in pairs");
  weight.require_form(DType::u8, {matrix.rows() / 2, matrix.cols()});
  return make_int4<RowPairInt4Codec>(matrix, {weight, find_scales(matrix), {}, std::nullopt});
}

}  // namespace moesaic
