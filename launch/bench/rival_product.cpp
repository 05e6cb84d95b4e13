#include "launch/bench/rival_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/weight_format.h"

namespace moesaic {
namespace {

constexpr Layout kInt8{.format = Format::int8};

/// The weights row by row, as they are before packing.
std::vector<std::byte> plain_weights(const SampleWeights& weights, const MatrixShape& shape) {
  const bool integer = weights.layout() == kInt8;
  std::vector<BFloat16> rounded;
  if (!integer) {
    rounded.resize(weights.values().size());
    std::ranges::transform(weights.values(), rounded.begin(), to_bfloat16);
  }
  const auto sample = integer ? std::as_bytes(std::span(weights.codes().codes))
                              : std::as_bytes(std::span<const BFloat16>(rounded));
  std::vector<std::byte> plain(
      static_cast<std::size_t>(shape.columns * shape.depth * (integer ? 1 : 2)));
  for (std::size_t at = 0; at < plain.size(); at += sample.size()) {
    std::memcpy(plain.data() + at, sample.data(), std::min(sample.size(), plain.size() - at));
  }
  return plain;
}

}  // namespace

RivalProduct::RivalProduct(const SampleWeights& weights, const SampleRows& rows,
                           const MatrixShape& shape, std::span<std::byte> memory)
    : weights_(&weights),
      rows_(&rows),
      shape_(shape),
      plain_(plain_weights(weights, shape)),
      rival_(weights.layout().format, shape, plain_, memory) {}

void RivalProduct::prepare(std::int64_t num_rows, int threads) {
  std::span<const std::byte> input(rows_->data(),
                                   static_cast<std::size_t>(num_rows * shape_.depth * 2));
  if (weights_->layout() == kInt8) {
    std::vector<float> values;
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const std::vector<float> one = rows_->values(row);
      values.insert(values.end(), one.begin(), one.end());
    }
    quantize_rows(kInt8, {.values = values, .num_rows = num_rows, .depth = shape_.depth}, nullptr,
                  input_codes_);
    input = std::as_bytes(std::span(input_codes_.codes));
  }
  rival_.prepare(input, num_rows, threads);
}

double RivalProduct::result(std::int64_t row, std::int64_t column) const {
  const std::byte* at = rival_.output() + (row * shape_.columns + column) * 4;
  if (weights_->layout() != kInt8) return static_cast<double>(*reinterpret_cast<const float*>(at));
  const auto scale = [](const QuantizedRows& codes, std::int64_t index) {
    return static_cast<double>(codes.scales[codes.group_index(index, 0)]);
  };
  return static_cast<double>(*reinterpret_cast<const std::int32_t*>(at)) *
         scale(input_codes_, row) * scale(weights_->codes(), column);
}

}  // namespace moesaic
