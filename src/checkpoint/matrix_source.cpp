#include "src/checkpoint/matrix_source.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "src/checkpoint/codecs/codecs.h"

namespace moesaic {
namespace {

/// The element at `index` of unaligned storage.
template <typename T>
T load(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

/// All bits set if `condition`, none otherwise.
std::uint32_t mask(bool condition) {
  return 0U - static_cast<std::uint32_t>(condition);
}

/// As half_to_float, without branches, so that the loops below become vector code.
float from_half(std::uint16_t half) {
  constexpr std::uint32_t kRebias = 112U << 23;  // of the exponent, once more for infinity and NaN
  const std::uint32_t exponent = half >> 10 & 31U;
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t normal =
      ((half & 0x7fffU) << 13) + kRebias + (kRebias & mask(exponent == 31));
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(half & 0x3ffU)) * 0x1p-24F;
  const std::uint32_t is_small = mask(exponent == 0);
  return std::bit_cast<float>(sign | (std::bit_cast<std::uint32_t>(subnormal) & is_small) |
                              (normal & ~is_small));
}

void to_floats(std::span<const std::byte> bytes, DType dtype, std::span<float> out) {
  if (out.empty()) return;
  const std::byte* data = bytes.data();
  switch (dtype) {
    case DType::f32:
      std::memcpy(out.data(), data, bytes.size());
      return;
    case DType::f16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = from_half(load<std::uint16_t>(data, i));
      }
      return;
    default:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = to_float(BFloat16{load<std::uint16_t>(data, i)});
      }
  }
}

void to_bfloats(std::span<const std::byte> bytes, DType dtype, std::span<BFloat16> out) {
  if (out.empty()) return;
  const std::byte* data = bytes.data();
  switch (dtype) {
    case DType::f32:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_bfloat16(load<float>(data, i));
      return;
    case DType::f16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = to_bfloat16(from_half(load<std::uint16_t>(data, i)));
      }
      return;
    default:
      std::memcpy(out.data(), data, bytes.size());
  }
}

}  // namespace

MatrixSource::MatrixSource(const Checkpoint& checkpoint, const TensorSlice& slice)
    : rows_(slice.rows), cols_(slice.cols) {
  const StoredMatrix matrix(checkpoint, slice);
  codec_ = find_codec(matrix);
  if (codec_ != nullptr) {
    first_row_ = matrix.first_row();
    row_step_ = slice.row_step;
    return;
  }
  const TensorView& tensor = checkpoint.at(slice.tensor);
  require(std::ranges::equal(tensor.shape, slice.shape), ErrorKind::file,
          "{}: tensor \"{}\" has shape {}, config.json asks for {}", tensor.file, tensor.name,
          format_shape(tensor.shape), format_shape(slice.shape));
  require(slice.row_step == 1, ErrorKind::file,
          "{}: tensor \"{}\" is {}: matrices whose rows take turns are read from quantised tensors "
          "alone",
          tensor.file, tensor.name, dtype_name(tensor.dtype));
  dtype_ = tensor.dtype;
  const std::int64_t row_size = cols_ * dtype_bytes(dtype_);
  bytes_ = tensor.bytes.subspan(static_cast<std::size_t>(slice.first_row * row_size),
                                static_cast<std::size_t>(slice.rows * row_size));
}

MatrixSource::MatrixSource(const TensorView& plain)
    : rows_(plain.shape.at(0)), cols_(plain.shape.at(1)), dtype_(plain.dtype), bytes_(plain.bytes) {
  const bool is_read = dtype_ == DType::f32 || dtype_ == DType::bf16 || dtype_ == DType::f16;
  require(is_read, ErrorKind::file, "{}: tensor \"{}\" is {}, not F32, BF16 or F16", plain.file,
          plain.name, dtype_name(dtype_));
}

Layout MatrixSource::layout() const noexcept {
  if (codec_ != nullptr) return codec_->layout();
  return {dtype_ == DType::bf16 ? Format::bf16 : Format::f32};
}

float MatrixSource::scale() const noexcept {
  return codec_ != nullptr ? codec_->scale() : 1.0F;
}

std::span<const std::int32_t> MatrixSource::order() const noexcept {
  return codec_ != nullptr ? codec_->order() : std::span<const std::int32_t>();
}

std::span<const std::byte> MatrixSource::row_bytes(std::int64_t first, std::int64_t count) const {
  assert(first >= 0 && count >= 0 && first + count <= rows_);
  const std::int64_t row_size = cols_ * dtype_bytes(dtype_);
  return bytes_.subspan(static_cast<std::size_t>(first * row_size),
                        static_cast<std::size_t>(count * row_size));
}

RowRange MatrixSource::codec_rows(std::int64_t first, std::int64_t count) const {
  assert(first >= 0 && count >= 0 && first + count <= rows_);
  return {first_row_ + first * row_step_, count, row_step_};
}

void MatrixSource::read_rows(std::int64_t first, std::int64_t count, std::span<float> out) const {
  assert(std::ssize(out) == count * cols_);
  if (codec_ != nullptr) {
    codec_->read_floats(codec_rows(first, count), out);
  } else {
    to_floats(row_bytes(first, count), dtype_, out);
  }
}

void MatrixSource::read_rows(std::int64_t first, std::int64_t count,
                             std::span<BFloat16> out) const {
  assert(std::ssize(out) == count * cols_);
  if (codec_ == nullptr) return to_bfloats(row_bytes(first, count), dtype_, out);
  std::vector<float> floats(out.size());
  read_rows(first, count, std::span(floats));
  std::ranges::transform(floats, out.begin(), to_bfloat16);
}

void MatrixSource::read_quantized(std::int64_t first, std::int64_t count,
                                  QuantizedRows& out) const {
  assert(codec_ != nullptr);
  codec_->read_quantized(codec_rows(first, count), out);
}

void MatrixSource::for_each_bytes(
    std::int64_t first, std::int64_t count,
    const std::function<void(std::span<const std::byte>)>& call) const {
  if (codec_ != nullptr) {
    codec_->for_each_bytes(codec_rows(first, count), call);
  } else {
    call(row_bytes(first, count));
  }
}

}  // namespace moesaic
