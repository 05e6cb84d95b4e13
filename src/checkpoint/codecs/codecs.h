#pragma once

#include <memory>
#include <optional>

#include "src/checkpoint/codecs/matrix_codec.h"
#include "src/checkpoint/codecs/stored_matrix.h"

namespace moesaic {

using CodecPtr = std::shared_ptr<const MatrixCodec>;

/// Decides from the tensors that are there how a matrix is stored; nullptr: plain, in `weight`.
/// Throws Error{file} naming file, tensor, what was found and what was expected for a form that is
/// not read.
[[nodiscard]] CodecPtr find_codec(const StoredMatrix& matrix);

// The families, a file each. Shapes are those of one matrix [N, K]; in a tensor of all experts they
// follow the dimension of experts. All of them throw as find_codec does.

/// fp8.cpp. `weight` F8_E4M3 [N, K]; scales one a block, row or matrix (fp8_block, fp8_channel), or
/// exponents [N, K/32] (mxfp8).
[[nodiscard]] CodecPtr make_fp8_codec(const StoredMatrix& matrix, const StoredTensor& weight);

/// microscaled.cpp. Two e2m1 codes a byte [N, K/2] (gpt-oss: [N, K/32, 16]), the even k low.
/// nvfp4: scales e4m3 [N, K/16], or [N, K/32] of W4A8_NVFP4, which count for two groups each.
[[nodiscard]] CodecPtr make_nvfp4_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                                        const StoredTensor& scales);
/// The scale of activations that meet such a matrix, where the checkpoint has one: input_scale, by
/// which their codes are multiplied (ModelOpt), or input_global_scale, which is its inverse
/// (compressed-tensors). Throws Error{file} for one that is no positive number.
[[nodiscard]] std::optional<float> find_input_scale(const StoredMatrix& matrix);
/// mxfp4: scales e8m0 [N, K/32].
[[nodiscard]] CodecPtr make_mxfp4_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                                        const StoredTensor& scales);
/// `codes` F8_E4M3 [N, K], scales e8m0 [N, K/32].
[[nodiscard]] CodecPtr make_mxfp8_codec(const StoredMatrix& matrix, const StoredTensor& codes,
                                        const StoredTensor& scales);

/// integers.cpp. compressed-tensors' `weight` I8 [N, K]: int8 with a scale a row or matrix, or
/// 4-bit integers with a scale a group.
[[nodiscard]] CodecPtr make_plain_integer_codec(const StoredMatrix& matrix,
                                                const StoredTensor& weight);
/// compressed-tensors' `weight_packed` I32 [N, K * bits / 32]: 4 bits, or 8 with a scale a row.
[[nodiscard]] CodecPtr make_packed_integer_codec(const StoredMatrix& matrix,
                                                 const StoredTensor& packed);
/// ModelOpt's W4A16_AWQ: `weight` U8 [N/2, K], rows in pairs.
[[nodiscard]] CodecPtr make_row_pair_codec(const StoredMatrix& matrix, const StoredTensor& weight);

/// k_outermost.cpp. `qweight` I32 [K/8, N].
[[nodiscard]] CodecPtr make_gptq_codec(const StoredMatrix& matrix, const StoredTensor& qweight);
/// The same. `qweight` I32 [K, N/8].
[[nodiscard]] CodecPtr make_awq_codec(const StoredMatrix& matrix, const StoredTensor& qweight);

}  // namespace moesaic
