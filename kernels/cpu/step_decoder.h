#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_matrix.h"

namespace moesaic {

/// Steps [first, first + count) of one packed panel.
struct StepRange {
  const PackedMatrix* matrix;
  std::int64_t panel;
  std::int64_t first;
  std::int64_t count;
};

/// Brings steps into the form that raw kernels read, kTileBytes each, at `out` (64-byte aligned):
/// bf16 lines (kernels/formats/bf16.h), or int8 lines for formats that is_integer() names.
using DecodeSteps = void (*)(const StepRange& steps, std::byte* out) noexcept;

}  // namespace moesaic
