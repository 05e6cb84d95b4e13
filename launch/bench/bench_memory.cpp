#include "launch/bench/bench_memory.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/memory.h"
#include "launch/job/memory_check.h"

namespace moesaic {

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kShare = 3;  // of spare memory: one is for weights

}  // namespace

std::int64_t cold_bytes(const Runtime& runtime) {
  const std::int64_t wanted = runtime.options().footprint.bytes;
  const std::int64_t spare = spare_memory(runtime) / kShare / kMebibyte * kMebibyte;
  return std::max(kMebibyte, std::min(round_up(wanted, kMebibyte), spare));
}

void require_cold_bytes(const Runtime& runtime, std::int64_t bytes, std::string_view use) {
  if (bytes > round_up(runtime.options().footprint.bytes, kMebibyte)) return;
  require_spare_memory(runtime, kShare * round_up(bytes, kMebibyte),
                       fmt::format("{} of {}, which get a third of it,", use, format_bytes(bytes)));
}

}  // namespace moesaic
