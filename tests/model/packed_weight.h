#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "kernels/packed_matrix.h"
#include "src/model/precision.h"
#include "tests/model/naive_gqa.h"

namespace moesaic {

/// Normal, and exact in bf16, so that weights are the same in both precisions.
[[nodiscard]] Doubles exact_numbers(std::int64_t count, unsigned seed, double scale);
[[nodiscard]] std::vector<float> as_floats(const Doubles& values);

/// A matrix and the memory that it lies in.
struct PackedWeight {
  PackedMatrix matrix{};
  Buffer<std::byte> memory;
};

/// Of `depth` columns, in the format of weights that are not quantised.
[[nodiscard]] PackedWeight pack_weight(const Doubles& values, std::int64_t depth,
                                       Precision precision);

/// |a - b| / |b|
[[nodiscard]] double relative_distance(const std::vector<float>& a, const Doubles& b);

}  // namespace moesaic
