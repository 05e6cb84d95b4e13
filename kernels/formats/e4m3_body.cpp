#include "kernels/formats/e4m3_body.h"

#include "base/error.h"
#include "kernels/formats/elements.h"

namespace moesaic::e4m3_body {
namespace {

/// Whether a byte of eight is 0x7f without its sign.
bool has_nan(std::uint64_t eight) {
  const std::uint64_t carried = (eight & eight_times(0x7f)) + eight_times(1);
  return (carried & eight_times(0x80)) != 0;
}

}  // namespace

void require_numbers(const StepCodes<kStepDepth>& codes, std::int64_t first_k) {
  bool found = false;
  for (const auto& row : codes.row) {
    for (std::int64_t k = 0; k < kStepDepth; k += 8) found |= has_nan(load_codes(row + k));
  }
  if (!found) return;
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    for (std::int64_t k = 0; k < kStepDepth; ++k) {
      require(!is_e4m3_nan(codes.row[r][k]), ErrorKind::file,
              "row {} of a panel, k {}: the weight's e4m3 code {:#04x} is no number", r,
              first_k + k, codes.row[r][k]);
    }
  }
}

void pack_step(const StepCodes<kStepDepth>& codes, std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    for (std::int64_t line = 0; line < 16; ++line) {
      std::memcpy(out + code_index(r, 2 * line), codes.row[r] + line * 2, 2);
    }
  }
}

float element(const std::byte* step, std::int64_t column, std::int64_t k) noexcept {
  return e4m3_to_float(std::to_integer<std::uint8_t>(step[code_index(column, k)]));
}

}  // namespace moesaic::e4m3_body
