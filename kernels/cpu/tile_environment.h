#pragma once

#include <xmmintrin.h>

namespace moesaic {

/// For its lifetime this thread computes as TDPBF16PS does whatever the caller's settings are:
/// nearest-even, no traps, subnormal operands count as zero and subnormal results become zero (both
/// keep their sign). The work has to be a call that the compiler does not inline, or it could move
/// arithmetic across the change of MXCSR.
class TileEnvironment {
 public:
  TileEnvironment() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kFlushToZero | kAllMasked); }
  ~TileEnvironment() { _mm_setcsr(saved_); }
  TileEnvironment(const TileEnvironment&) = delete;
  TileEnvironment& operator=(const TileEnvironment&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8040;  // results (FTZ) and operands (DAZ)
  static constexpr unsigned kAllMasked = 0x1f80;

  unsigned saved_;
};

}  // namespace moesaic
