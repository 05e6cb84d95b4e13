#pragma once

#include <xmmintrin.h>

#include <cstddef>
#include <cstdint>

namespace moesaic {

/// Bytes by which codes are asked for before they are decoded into memory.
inline constexpr std::int64_t kPrefetchBytes = 4096;

/// Brings lines into the L2 cache. Harmless behind the end of the memory. Always inlined: GCC takes
/// a function that only prefetches for one without effect, and drops calls of it.
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* from, std::int64_t lines) {
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < lines; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(from + 64 * i), _MM_HINT_T1);
  }
}

}  // namespace moesaic
