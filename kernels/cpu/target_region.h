#pragma once

// Code between MOESAIC_BEGIN_TARGET("avx512f,...") and MOESAIC_END_TARGET is compiled for those
// instruction-set extensions; the rest of the file is not. Per-file -m flags would let inline
// functions of the standard library, compiled for AVX-512, be chosen by the linker for the whole
// program. All includes stand before the region, and everything inside is in an anonymous
// namespace.

#define MOESAIC_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define MOESAIC_BEGIN_TARGET(extensions) \
  MOESAIC_PRAGMA(clang attribute push(__attribute__((target(extensions))), apply_to = function))
#define MOESAIC_END_TARGET _Pragma("clang attribute pop")
#else
#define MOESAIC_BEGIN_TARGET(extensions) \
  _Pragma("GCC push_options") MOESAIC_PRAGMA(GCC target(extensions))
#define MOESAIC_END_TARGET _Pragma("GCC pop_options")
#endif

// Unrolls the loop that follows whatever the optimisation level, so that an array of accumulators
// becomes registers.
#if defined(__clang__)
#define MOESAIC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MOESAIC_UNROLL _Pragma("GCC unroll 32")
#endif
