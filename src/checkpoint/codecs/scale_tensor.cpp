#include "src/checkpoint/codecs/scale_tensor.h"

#include <fmt/format.h>

#include "kernels/formats/elements.h"

namespace moesaic {

bool is_float_scale(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

bool is_exponent_scale(DType dtype) noexcept {
  return dtype == DType::u8 || dtype == DType::f8_e8m0;
}

StoredTensor find_scale(const StoredMatrix& matrix, const StoredTensor& weight) {
  if (auto scale = matrix.find({"weight_scale_inv", "weight_scale", "scale"})) {
    return *std::move(scale);
  }
  weight.refuse("has no scales beside it (weight_scale_inv, weight_scale or scale)");
}

ScaleTensor::ScaleTensor(const StoredTensor& tensor, std::int64_t rows, std::int64_t cols)
    : tensor_(tensor), rows_(rows), cols_(cols) {
  if (!is_float_scale(tensor.dtype()) && !is_exponent_scale(tensor.dtype())) {
    tensor.refuse("should hold scales of type F32, BF16, F16, F8_E8M0 or U8");
  }
  if (tensor.num_elements() != rows * cols) {
    tensor.refuse(fmt::format("should have {} x {} elements", rows, cols));
  }
}

float ScaleTensor::load(std::int64_t index) const noexcept {
  switch (tensor_.dtype()) {
    case DType::f32:
      return tensor_.load<float>(index);
    case DType::bf16:
      return to_float(BFloat16{tensor_.load<std::uint16_t>(index)});
    case DType::f16:
      return half_to_float(tensor_.load<std::uint16_t>(index));
    default:
      return e8m0_to_float(tensor_.load<std::uint8_t>(index));
  }
}

std::span<const std::byte> ScaleTensor::row_bytes(std::int64_t first, std::int64_t end) const {
  const std::int64_t size = cols_ * dtype_bytes(tensor_.dtype());
  return tensor_.bytes.subspan(static_cast<std::size_t>(first * size),
                               static_cast<std::size_t>((end - first) * size));
}

}  // namespace moesaic
