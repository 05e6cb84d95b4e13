#pragma once

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

// What a CPU and Linux say of AMX. Of this file alone, so that software that stands in for AMX can
// ask it too.

namespace moesaic {

/// Whether CPUID tells of tiles with their bf16 and int8 products.
[[nodiscard]] inline bool cpuid_has_amx() {
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  constexpr unsigned kInt8 = 1U << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

/// Asks Linux, for all threads of the process, for the memory that tiles need
/// (Documentation/arch/x86/xstate.rst). 0, or the errno with which it refuses.
[[nodiscard]] inline int ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of <asm/prctl.h>
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA, its number in XCR0
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
}

}  // namespace moesaic
