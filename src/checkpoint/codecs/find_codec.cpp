#include <fmt/format.h>

#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/codecs/scale_tensor.h"

namespace moesaic {
namespace {

CodecPtr find_k_outermost(const StoredMatrix& matrix, const StoredTensor& qweight) {
  const StoredTensor scales = matrix.at("scales");
  if (qweight.shape.size() == 2 && scales.shape.size() == 2) {
    const std::int64_t columns = qweight.shape[1];
    if (columns == scales.shape[1]) return make_gptq_codec(matrix, qweight);
    if (scales.shape[1] % 8 == 0 && columns == scales.shape[1] / 8) {
      return make_awq_codec(matrix, qweight);
    }
  }
  qweight.refuse(
      fmt::format("beside scales {}, is packed neither as GPTQ does ([K/8, N], scales [K/group, "
                  "N]) nor as AWQ's gemm version does ([K, N/8])",
                  format_shape(scales.shape)));
}

CodecPtr find_packed(const StoredMatrix& matrix, const StoredTensor& packed) {
  if (packed.dtype() == DType::i32) return make_packed_integer_codec(matrix, packed);
  if (packed.dtype() != DType::u8) packed.refuse("should be I32 (integers) or U8 (4-bit floats)");
  const StoredTensor scales = matrix.at("weight_scale");
  return scales.dtype() == DType::f8_e4m3 ? make_nvfp4_codec(matrix, packed, scales)
                                          : make_mxfp4_codec(matrix, packed, scales);
}

/// `weight` of bytes: 4-bit floats, two a byte, or integers.
CodecPtr find_bytes(const StoredMatrix& matrix, const StoredTensor& weight) {
  const StoredTensor scales = find_scale(matrix, weight);
  const bool two = weight.shape.size() == 2;
  const bool halved = two && weight.shape[0] == matrix.rows() && matrix.cols() % 2 == 0 &&
                      weight.shape[1] == matrix.cols() / 2;
  if (halved && scales.dtype() == DType::f8_e4m3) {
    return make_nvfp4_codec(matrix, weight, scales);
  }
  if (halved && is_exponent_scale(scales.dtype())) {
    return make_mxfp4_codec(matrix, weight, scales);
  }
  if (weight.dtype() == DType::i8) return make_plain_integer_codec(matrix, weight);
  return make_row_pair_codec(matrix, weight);
}

}  // namespace

CodecPtr find_codec(const StoredMatrix& matrix) {
  if (const auto scale = matrix.find("pre_quant_scale")) {
    scale->refuse(
        "wants the layer's inputs multiplied by it, which is not done; take the unquantised "
        "checkpoint or one without AWQ");
  }
  if (const auto qweight = matrix.find("qweight")) return find_k_outermost(matrix, *qweight);
  if (const auto packed = matrix.find("weight_packed")) return find_packed(matrix, *packed);
  if (const auto blocks = matrix.find("blocks")) {
    return make_mxfp4_codec(matrix, *blocks, matrix.at("scales"));
  }
  const StoredTensor weight = matrix.at("weight");
  switch (weight.dtype()) {
    case DType::bf16:
    case DType::f16:
    case DType::f32:
      return nullptr;
    case DType::f8_e4m3:
      return make_fp8_codec(matrix, weight);
    case DType::u8:
    case DType::i8:
      return find_bytes(matrix, weight);
    default:
      weight.refuse(
          "is of a type that is not read for weights: BF16, F16 and F32 are, and F8_E4M3, I8 and "
          "U8 "
          "with scales");
  }
}

}  // namespace moesaic
