#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/rounding.h"
#include "kernels/formats/elements.h"
#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/codecs/nibbles.h"
#include "src/checkpoint/codecs/scale_tensor.h"

namespace moesaic {
namespace {

constexpr float kLargestBlockValue = kLargestE4m3 * kLargestE2m1;

/// Codes and scales of one byte, in the order of the rows.
struct CodedTensors {
  StoredTensor codes;
  StoredTensor scales;                // [N, groups of the file]
  std::int64_t groups_per_scale = 1;  // of the layout
};

class MicroscaledCodec final : public MatrixCodec {
 public:
  MicroscaledCodec(const StoredMatrix& matrix, Format format, const CodedTensors& tensors,
                   const MatrixScale& scale)
      : MatrixCodec(matrix, Layout{format}, tensors.scales), tensors_(tensors) {
    set_scale(scale);
  }

  void for_each_bytes(const RowRange& range, const BytesCall& call) const override {
    call(tensors_.codes.row_bytes(range.first, range.end()));
    call(tensors_.scales.row_bytes(range.first, range.end()));
  }

 private:
  void fill(const RowRange& range, QuantizedRows& out) const override {
    for (std::int64_t i = 0; i < range.count; ++i) {
      const std::int64_t row = range.at(i);
      fill_codes(row, out.codes.data() + i * cols());
      const std::byte* const scales = tensors_.scales.row_bytes(row, row + 1).data();
      for (std::int64_t group = 0; group < num_groups(); ++group) {
        out.scale_codes[out.group_index(i, group)] =
            std::to_integer<std::uint8_t>(scales[group / tensors_.groups_per_scale]);
      }
    }
  }
  void fill_codes(std::int64_t row, std::uint8_t* out) const {
    const std::byte* const codes = tensors_.codes.row_bytes(row, row + 1).data();
    if (layout().format == Format::mxfp8) {
      std::memcpy(out, codes, static_cast<std::size_t>(cols()));
    } else {
      unpack_nibbles(codes, cols(), out);
    }
  }

  CodedTensors tensors_;
};

std::int64_t groups_of(const StoredMatrix& matrix, std::int64_t group) {
  return divide_up(matrix.cols(), group);
}

/// Two codes a byte; gpt-oss keeps the groups of 32 as a dimension.
void require_nibbles(const StoredMatrix& matrix, const StoredTensor& codes) {
  const std::int64_t rows = matrix.rows();
  const std::int64_t cols = matrix.cols();
  if (codes.dtype() != DType::u8 && codes.dtype() != DType::i8) codes.refuse("should be U8");
  if (cols % 2 != 0) {
    codes.refuse(fmt::format("cannot hold rows of {} 4-bit codes, an odd number", cols));
  }
  if (codes.shape.size() == 3 && cols % 32 == 0) {
    codes.require_shape({rows, cols / 32, 16});
  } else {
    codes.require_shape({rows, cols / 2});
  }
}

/// The element of [gate, up] that is the slice's, where both have their own.
std::int64_t scalar_index(const StoredMatrix& matrix, const StoredTensor& scalar) {
  const std::int64_t count = scalar.num_elements();
  if (count == 1) return 0;
  if (count != 2) scalar.refuse("should have one element, or one for gate and one for up");
  return matrix.first_row() >= matrix.rows() / 2 ? 1 : 0;
}

/// compressed-tensors divides by its scale, ModelOpt multiplies.
MatrixScale find_matrix_scale(const StoredMatrix& matrix) {
  const bool divides = matrix.find("weight_packed").has_value();
  const StoredTensor tensor = matrix.at(divides ? "weight_global_scale" : "weight_scale_2");
  if (!is_float_scale(tensor.dtype())) tensor.refuse("should be F32");
  const ScaleTensor values(tensor, 1, tensor.num_elements());
  const MatrixScale scale{values.at(0, scalar_index(matrix, tensor)), divides};
  if (!std::isfinite(scale.apply(kLargestBlockValue)) || !std::isfinite(scale.value)) {
    tensor.refuse(fmt::format("holds {}, which is no scale", scale.value));
  }
  return scale;
}

/// Beyond them neither a scale of 2^-9 times this one is a normal number nor one of 448 finite.
constexpr float kLeastInputScale = 0x1p-100F;
constexpr float kMostInputScale = 0x1p100F;

}  // namespace

std::optional<float> find_input_scale(const StoredMatrix& matrix) {
  const auto tensor = matrix.find({"input_scale", "input_global_scale"});
  if (!tensor) return std::nullopt;
  if (!is_float_scale(tensor->dtype())) tensor->refuse("should be F32");
  const ScaleTensor values(*tensor, 1, tensor->num_elements());
  const float value = values.at(0, scalar_index(matrix, *tensor));
  const float scale = matrix.find("input_scale") ? value : 1 / value;
  if (!(scale >= kLeastInputScale && scale <= kMostInputScale)) {
    tensor->refuse(fmt::format("holds {}, which is no scale of activations", value));
  }
  return scale;
}

CodecPtr make_nvfp4_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                          const StoredTensor& scales) {
  require_nibbles(matrix, codes);
  const std::int64_t wide = groups_of(matrix, 32);
  const bool is_wide = scales.shape.size() == 2 && scales.shape[1] == wide;
  const bool both = wide == groups_of(matrix, 16);
  scales.require_form(DType::f8_e4m3, {matrix.rows(), is_wide ? wide : groups_of(matrix, 16)});
  return std::make_shared<MicroscaledCodec>(matrix, Format::nvfp4,
                                            CodedTensors{codes, scales, is_wide && !both ? 2 : 1},
                                            find_matrix_scale(matrix));
}

CodecPtr make_mxfp4_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                          const StoredTensor& scales) {
  require_nibbles(matrix, codes);
  if (!is_exponent_scale(scales.dtype())) scales.refuse("should be U8 or F8_E8M0");
  scales.require_shape({matrix.rows(), groups_of(matrix, 32)});
  return std::make_shared<MicroscaledCodec>(matrix, Format::mxfp4, CodedTensors{codes, scales},
                                            MatrixScale{});
}

CodecPtr make_mxfp8_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                          const StoredTensor& scales) {
  codes.require_form(DType::f8_e4m3, {matrix.rows(), matrix.cols()});
  scales.require_shape({matrix.rows(), groups_of(matrix, 32)});
  return std::make_shared<MicroscaledCodec>(matrix, Format::mxfp8, CodedTensors{codes, scales},
                                            MatrixScale{});
}

}  // namespace moesaic
