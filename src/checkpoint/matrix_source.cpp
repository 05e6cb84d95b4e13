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

bool is_plain(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

MatrixSource::MatrixSource(const Checkpoint& checkpoint, const TensorSlice& slice)
    : rows_(slice.rows), cols_(slice.cols), offset_(slice.offset) {
  const StoredMatrix matrix(checkpoint, slice);
  if (!slice.is_transposed) codec_ = find_codec(matrix);
  if (codec_ != nullptr) {
    first_row_ = matrix.first_row();
    row_step_ = slice.row_step;
    return;
  }
  take_plain(checkpoint.at(slice.tensor), slice);
}

void MatrixSource::take_plain(const TensorView& tensor, const TensorSlice& slice) {
  require(std::ranges::equal(tensor.shape, slice.shape), ErrorKind::file,
          "{}: tensor \"{}\" has shape {}, config.json asks for {}", tensor.file, tensor.name,
          format_shape(tensor.shape), format_shape(slice.shape));
  require(is_plain(tensor.dtype), ErrorKind::file, "{}: tensor \"{}\" is {}, not F32, BF16 or F16",
          tensor.file, tensor.name, dtype_name(tensor.dtype));
  dtype_ = tensor.dtype;
  const std::int64_t row_size = slice.is_transposed ? slice.shape.back() : cols_;
  row_stride_ = slice.is_transposed ? slice.row_step : slice.row_step * cols_;
  col_stride_ = slice.is_transposed ? row_size : 1;
  const std::int64_t first = slice.first_row * row_size + slice.first_column;
  const std::int64_t last = (rows_ - 1) * row_stride_ + (cols_ - 1) * col_stride_;
  const std::int64_t size = dtype_bytes(dtype_);
  bytes_ = tensor.bytes.subspan(static_cast<std::size_t>(first * size),
                                static_cast<std::size_t>((last + 1) * size));
}

MatrixSource::MatrixSource(const TensorView& plain)
    : rows_(plain.shape.at(0)),
      cols_(plain.shape.at(1)),
      dtype_(plain.dtype),
      bytes_(plain.bytes),
      row_stride_(cols_) {
  require(is_plain(dtype_), ErrorKind::file, "{}: tensor \"{}\" is {}, not F32, BF16 or F16",
          plain.file, plain.name, dtype_name(dtype_));
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

/// From the first element of these rows to the last one; of a matrix that lies across all bytes,
/// with the last row.
std::span<const std::byte> MatrixSource::row_bytes(std::int64_t first, std::int64_t count) const {
  assert(first >= 0 && count >= 0 && first + count <= rows_);
  if (count == 0) return {};
  if (lies_across()) return first + count == rows_ ? bytes_ : std::span<const std::byte>();
  const std::int64_t size = dtype_bytes(dtype_);
  return bytes_.subspan(static_cast<std::size_t>(first * row_stride_ * size),
                        static_cast<std::size_t>(((count - 1) * row_stride_ + cols_) * size));
}

/// Elements of rows that do not lie one behind the other, row by row.
template <typename Element>
std::vector<std::byte> MatrixSource::gather(std::int64_t first, std::int64_t count) const {
  std::vector<std::byte> rows(static_cast<std::size_t>(count * cols_) * sizeof(Element));
  const auto copy = [&](std::int64_t row, std::int64_t col) {
    const std::int64_t from = (first + row) * row_stride_ + col * col_stride_;
    std::memcpy(rows.data() + (row * cols_ + col) * std::int64_t{sizeof(Element)},
                bytes_.data() + from * std::int64_t{sizeof(Element)}, sizeof(Element));
  };
  for (std::int64_t col = 0; col < cols_; ++col) {  // neighbours in the file are rows
    for (std::int64_t row = 0; row < count; ++row) copy(row, col);
  }
  return rows;
}

std::vector<std::byte> MatrixSource::gather_rows(std::int64_t first, std::int64_t count) const {
  return dtype_bytes(dtype_) == 4 ? gather<float>(first, count) : gather<BFloat16>(first, count);
}

/// use(bytes) with these rows, one behind the other.
template <typename Use>
void MatrixSource::use_rows(std::int64_t first, std::int64_t count, const Use& use) const {
  assert(first >= 0 && count >= 0 && first + count <= rows_);
  if (row_stride_ == cols_ && !lies_across()) return use(row_bytes(first, count));
  use(gather_rows(first, count));
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
    use_rows(first, count, [&](std::span<const std::byte> rows) { to_floats(rows, dtype_, out); });
  }
  if (offset_ == 0) return;
  for (float& element : out) element += offset_;
}

void MatrixSource::read_rows(std::int64_t first, std::int64_t count,
                             std::span<BFloat16> out) const {
  assert(std::ssize(out) == count * cols_);
  if (codec_ == nullptr) {
    return use_rows(first, count,
                    [&](std::span<const std::byte> rows) { to_bfloats(rows, dtype_, out); });
  }
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
