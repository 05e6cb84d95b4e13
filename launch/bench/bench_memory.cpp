#include "launch/bench/bench_memory.h"

#include <algorithm>

#include "launch/job/memory_check.h"

namespace moesaic {

std::int64_t cold_bytes(const Runtime& runtime) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  const std::int64_t wanted = runtime.options().footprint.bytes;
  const std::int64_t spare = spare_memory(runtime) / 3 / kMebibyte * kMebibyte;
  return std::max(kMebibyte, std::min(round_up(wanted, kMebibyte), spare));
}

}  // namespace moesaic
