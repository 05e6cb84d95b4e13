#include "launch/bench/bench_memory.h"

#include <algorithm>

#include "base/memory.h"
#include "kernels/format.h"

namespace moesaic {

std::int64_t cold_bytes(const Runtime& runtime) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  const std::int64_t wanted = runtime.options().footprint.bytes;
  const std::int64_t spare =
      memory_limit().available_bytes / (3 * runtime.grid().node().size()) / kMebibyte * kMebibyte;
  return std::max(kMebibyte, std::min(round_up(wanted, kMebibyte), spare));
}

}  // namespace moesaic
