#include "launch/shapes/cold_weights.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/weight_format.h"
#include "kernels/whole_product.h"

namespace moesaic {
namespace {

constexpr float kDeviation = 0.02F;  // as weights of models have it

}  // namespace

std::vector<float> normal_numbers(std::int64_t count, float deviation, std::uint64_t seed) {
  // The sum of the four 16-bit parts of a random word has mean 2 and variance 1/3 in units of 2^16.
  constexpr float kUnit = 1.0F / 65536;
  const float factor = deviation * 1.7320508F;
  std::uint64_t state = seed;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) {
    std::uint64_t word = state += 0x9e3779b97f4a7c15U;  // SplitMix64
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9U;
    word = (word ^ word >> 27) * 0x94d049bb133111ebU;
    word ^= word >> 31;
    float sum = -2;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<float>(word >> 16 * part & 0xffff) * kUnit;
    }
    number = factor * sum;
  }
  return numbers;
}

std::int64_t matrix_bytes(const Layout& layout, std::int64_t rows, std::int64_t depth) {
  return panel_count(rows) * panel_bytes(layout, depth);
}

SampleWeights::SampleWeights(const Layout& layout, std::int64_t depth, std::uint64_t seed)
    : values_(normal_numbers(kRows * depth, kDeviation, seed)) {
  OwnedMatrix packed = pack_matrix(layout, values_, kRows, depth);
  panels_ = std::move(packed.panels);
  matrix_ = packed.matrix;
  if (layout.format == Format::f32) return;
  if (layout.format == Format::bf16) {
    for (float& value : values_) value = to_float(to_bfloat16(value));
    return;
  }
  MatrixScales scales(layout, kRows, depth);  // as pack_matrix has them
  if (MatrixScales::needed(layout.format)) scales.add_rows(0, values_);
  quantize_rows(layout, {.values = values_, .num_rows = kRows, .depth = depth}, &scales, codes_);
  dequantize_rows(layout, codes_, matrix_.scale, values_);
}

std::int64_t SampleWeights::bytes(std::int64_t rows) const {
  return matrix_bytes(matrix_.layout, rows, depth());
}

PackedMatrix SampleWeights::write_matrix(std::int64_t rows, std::byte* panels) const {
  const std::int64_t all = bytes(rows);
  for (std::int64_t at = 0; at < all; at += matrix_.bytes()) {
    std::memcpy(panels + at, matrix_.panels,
                static_cast<std::size_t>(std::min(matrix_.bytes(), all - at)));
  }
  PackedMatrix matrix = matrix_;
  matrix.rows = rows;
  matrix.panels = panels;
  return matrix;
}

Rotation::Rotation(std::size_t count) : count_(count), stride_(count / 2) {
  while (std::gcd(stride_, count_) != 1) ++stride_;
}

ColdMatrices::ColdMatrices(const SampleWeights& weights, std::int64_t rows,
                           std::span<std::byte> memory, ThreadPool& pool) {
  const std::int64_t bytes = weights.bytes(rows);
  const std::int64_t count = std::ssize(memory) / bytes;
  require(count >= 1, ErrorKind::usage, "a matrix of {} does not fit into --footprint {}",
          format_bytes(bytes), format_bytes(std::ssize(memory)));
  matrices_.resize(static_cast<std::size_t>(count));
  pool.parallel_for(count, [&](std::int64_t index, int) {
    matrices_[static_cast<std::size_t>(index)] =
        weights.write_matrix(rows, memory.data() + index * bytes);
  });
  rotation_ = Rotation(matrices_.size());
}

}  // namespace moesaic
