#include <fmt/format.h>

#include <array>

#include "base/rounding.h"
#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/codecs/int4_groups.h"
#include "src/checkpoint/codecs/nibbles.h"
#include "src/checkpoint/codecs/scale_tensor.h"

namespace moesaic {
namespace {

/// What GPTQ and AWQ have in common.
struct KOutermostTensors {
  StoredTensor qweight;
  ScaleTensor scales;                  // [groups, N]
  std::optional<StoredTensor> qzeros;  // [groups, N/8], or every zero point is 8
  StoredGroups groups;
  std::uint32_t zero_word = 0;                  ///< added to every word of qzeros
  std::array<std::uint8_t, 8> nibble_of_row{};  ///< of a word of qzeros, for row % 8
};

class KOutermostCodec : public MatrixCodec {
 public:
  KOutermostCodec(const StoredMatrix& matrix, KOutermostTensors tensors)
      : MatrixCodec(matrix,
                    int4_group_layout(tensors.scales.tensor(), tensors.groups, matrix.cols(),
                                      !tensors.qzeros.has_value()),
                    tensors.scales.tensor()),
        tensors_(std::move(tensors)) {
    set_order(std::move(tensors_.groups.order));
  }

  void for_each_bytes(const RowRange& range, const BytesCall& call) const override {
    if (range.count == 0 || range.end() != rows()) return;
    call(tensors_.qweight.bytes);
    call(tensors_.scales.tensor().bytes);
    if (tensors_.qzeros) call(tensors_.qzeros->bytes);
  }

 protected:
  void fill(const RowRange& range, QuantizedRows& out) const override {
    fill_codes(range, out);
    for (std::int64_t i = 0; i < range.count; ++i) {
      for (std::int64_t g = 0; g < num_groups(); ++g) {
        const std::int64_t stored = g * group() / tensors_.groups.size;
        out.scales[out.group_index(i, g)] = tensors_.scales.at(stored, range.at(i));
        if (tensors_.qzeros) out.zeros[out.group_index(i, g)] = zero(stored, range.at(i));
      }
    }
  }
  virtual void fill_codes(const RowRange& range, QuantizedRows& out) const = 0;

  [[nodiscard]] const StoredTensor& qweight() const noexcept { return tensors_.qweight; }

 private:
  [[nodiscard]] std::uint8_t zero(std::int64_t stored_group, std::int64_t row) const {
    const StoredTensor& qzeros = *tensors_.qzeros;
    const auto word = qzeros.load<std::uint32_t>(stored_group * qzeros.shape[1] + row / 8);
    const unsigned shift = 4U * tensors_.nibble_of_row[static_cast<std::size_t>(row % 8)];
    return static_cast<std::uint8_t>((word + tensors_.zero_word) >> shift & 15U);
  }

  KOutermostTensors tensors_;
};

/// Word (r, n) holds k = 8r + i of row n in nibble i.
class GptqCodec final : public KOutermostCodec {
 public:
  using KOutermostCodec::KOutermostCodec;

 private:
  void fill_codes(const RowRange& range, QuantizedRows& out) const override {
    for (std::int64_t line = 0; line < cols() / 8; ++line) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        const auto word = qweight().load<std::uint32_t>(line * rows() + range.at(i));
        const std::uint64_t codes = spread_nibbles(word);
        std::memcpy(out.codes.data() + i * cols() + line * 8, &codes, sizeof codes);
      }
    }
  }
};

/// The nibble of a word of 8 rows that holds row % 8
/// (https://github.com/casper-hansen/AutoAWQ, awq/utils/packing_utils.py: AWQ_REVERSE_ORDER).
constexpr std::array<std::uint8_t, 8> kAwqNibbles = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr std::array<std::uint8_t, 8> kGptqNibbles = {0, 1, 2, 3, 4, 5, 6, 7};

/// Word (k, c) holds rows 8c ... 8c + 7 of input k.
class AwqCodec final : public KOutermostCodec {
 public:
  using KOutermostCodec::KOutermostCodec;

 private:
  void fill_codes(const RowRange& range, QuantizedRows& out) const override {
    std::int64_t i = 0;
    while (i < range.count) {
      std::uint8_t* const codes = out.codes.data() + i * cols();
      const bool whole_words = range.at(i) % 8 == 0 && range.step == 1 && range.count - i >= 8;
      whole_words ? fill_eight_rows(range.at(i), codes) : fill_row(range.at(i), 0, codes);
      i += whole_words ? 8 : 1;
    }
  }
  [[nodiscard]] std::uint32_t word(std::int64_t k, std::int64_t row) const {
    return qweight().load<std::uint32_t>(k * (rows() / 8) + row / 8);
  }
  void fill_row(std::int64_t row, std::int64_t first_k, std::uint8_t* codes) const {
    const unsigned shift = 4U * kAwqNibbles[static_cast<std::size_t>(row % 8)];
    for (std::int64_t k = first_k; k < cols(); ++k) {
      codes[k] = static_cast<std::uint8_t>(word(k, row) >> shift & 15U);
    }
  }
  void fill_eight_rows(std::int64_t first, std::uint8_t* codes) const {
    std::int64_t k = 0;
    for (; k + 8 <= cols(); k += 8) {
      std::array<std::uint64_t, 8> bytes{};
      for (std::int64_t j = 0; j < 8; ++j) {
        bytes[static_cast<std::size_t>(j)] = spread_nibbles(word(k + j, first));
      }
      transpose_bytes(bytes);
      for (std::int64_t row = 0; row < 8; ++row) {
        const std::size_t nibble = kAwqNibbles[static_cast<std::size_t>(row)];
        std::memcpy(codes + row * cols() + k, &bytes[nibble], 8);
      }
    }
    for (std::int64_t row = 0; row < 8; ++row) fill_row(first + row, k, codes + row * cols());
  }
};

/// [groups, N].
ScaleTensor scales_by_group(const StoredMatrix& matrix) {
  const StoredTensor scales = matrix.at("scales");
  const std::int64_t groups = scales.shape.size() == 2 ? scales.shape[0] : 0;
  scales.require_shape({groups, matrix.rows()});
  return {scales, groups, matrix.rows()};
}

/// Groups without an index: of the configured size, where it gives as many as there are scales.
StoredGroups plain_groups(const StoredMatrix& matrix, const ScaleTensor& scales) {
  const std::int64_t size = matrix.config().group_size;
  const std::int64_t cols = matrix.cols();
  if (size > 0 && divide_up(cols, size) == scales.rows()) return {size, {}};
  return even_groups(scales.tensor(), scales.rows(), cols);
}

StoredTensor find_zeros(const StoredMatrix& matrix, const ScaleTensor& scales) {
  const StoredTensor zeros = matrix.at("qzeros");
  zeros.require_form(DType::i32, {scales.rows(), (matrix.rows() + 7) / 8});
  return zeros;
}

}  // namespace

CodecPtr make_gptq_codec(const StoredMatrix& matrix, const StoredTensor& qweight) {
  const std::int64_t rows = matrix.rows();
  const std::int64_t cols = matrix.cols();
  if (qweight.shape == std::vector{cols / 4, rows}) {
    qweight.refuse("is of 8 bits, which is not read: GPTQ weights of 4 bits are");
  }
  if (cols % 8 != 0) qweight.refuse(fmt::format("cannot pack rows of {} without a rest", cols));
  qweight.require_form(DType::i32, {cols / 8, rows});
  const ScaleTensor scales = scales_by_group(matrix);
  KOutermostTensors tensors{qweight, scales, std::nullopt, {}, 0, kGptqNibbles};
  const auto g_idx = matrix.find("g_idx");
  auto groups = g_idx ? indexed_groups(*g_idx, scales.rows(), cols) : std::nullopt;
  tensors.groups = groups ? *std::move(groups) : plain_groups(matrix, scales);
  if (matrix.config().gptq_zeros != GptqZeros::unused) {
    tensors.qzeros = find_zeros(matrix, scales);
    // A zero point of 0 was stored as -1 and has borrowed from its neighbour: only adding to the
    // whole word gives both back (GPTQModel, convert_gptq_v1_to_v2_format_module).
    const bool v1 = matrix.config().gptq_zeros == GptqZeros::minus_one;
    tensors.zero_word = v1 ? 0x11111111U : 0U;
  }
  return std::make_shared<GptqCodec>(matrix, std::move(tensors));
}

CodecPtr make_awq_codec(const StoredMatrix& matrix, const StoredTensor& qweight) {
  const std::int64_t rows = matrix.rows();
  const std::int64_t cols = matrix.cols();
  if (rows % 8 != 0) qweight.refuse(fmt::format("cannot pack {} rows without a rest", rows));
  qweight.require_form(DType::i32, {cols, rows / 8});
  const ScaleTensor scales = scales_by_group(matrix);
  return std::make_shared<AwqCodec>(
      matrix, KOutermostTensors{qweight, scales, find_zeros(matrix, scales),
                                plain_groups(matrix, scales), 0, kAwqNibbles});
}

}  // namespace moesaic
