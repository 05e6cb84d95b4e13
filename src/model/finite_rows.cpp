#include "src/model/finite_rows.h"

#include <algorithm>
#include <bit>

namespace moesaic {

bool all_finite(std::span<const float> values) noexcept {
  constexpr std::int32_t kInfinity = 0x7f800000;  // what is above is NaN
  std::int32_t largest = 0;
  for (const float value : values) {  // a loop that compilers turn into vector instructions
    largest = std::max(largest, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  }
  return largest < kInfinity;
}

}  // namespace moesaic
