#pragma once

namespace moesaic {

/// Tells the core that this thread is waiting for another one.
inline void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace moesaic
