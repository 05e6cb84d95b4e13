#pragma once

#include <cstdint>
#include <vector>

namespace moesaic {

/// Some rows of a quantised weight matrix, one code a byte: the form between what reads or makes
/// codes (checkpoint codecs, quantisers) and what packs them (kernels/formats).
///
///   format       code of one element             scale of a group of k (value = code * scale)
///   int8         int8                            scales, one a row
///   int4         -8..7 as int8                   scales, one a row
///   int4_group   0..15                           scales; value = (code - zero) * scale
///   fp8_block    e4m3                            scales, one for `group` k
///   fp8_channel  e4m3                            scales, one a row
///   nvfp4        e2m1 (0..15)                    scale_codes: e4m3, 16 k; times the matrix's scale
///   mxfp4        e2m1 (0..15)                    scale_codes: e8m0, 32 k
///   mxfp8        e4m3                            scale_codes: e8m0, 32 k
struct QuantizedRows {
  std::int64_t num_rows = 0;
  std::int64_t depth = 0;
  std::int64_t num_groups = 0;            // of one row: ceil(depth / k of a group)
  std::vector<std::uint8_t> codes;        // [num_rows, depth]
  std::vector<float> scales;              // [num_rows, num_groups] or empty
  std::vector<std::uint8_t> scale_codes;  // [num_rows, num_groups] or empty
  std::vector<std::uint8_t> zeros;        // [num_rows, num_groups]: int4_group

  [[nodiscard]] const std::uint8_t* row_codes(std::int64_t row) const noexcept {
    return codes.data() + row * depth;
  }
  [[nodiscard]] std::size_t group_index(std::int64_t row, std::int64_t group) const noexcept {
    return static_cast<std::size_t>(row * num_groups + group);
  }
};

}  // namespace moesaic
