#pragma once

#include <cstddef>

#include "kernels/cpu/intrinsics.h"

namespace moesaic {

/// Fetches some lines of codes some steps ahead: their panel is one stream. Harmless behind the
/// end.
template <int Lines>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* codes) {
  for (int line = 0; line < Lines; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + 4096 + 64 * line), _MM_HINT_T1);
  }
}

}  // namespace moesaic
