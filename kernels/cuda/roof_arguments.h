#pragma once

#include <cstdint>

// What the host gives to the kernels of kernels/cuda/roofs, which include this file too.

namespace moesaic::cuda {

inline constexpr int kRoofThreads = 256;  // of a block
inline constexpr int kRoofChains = 8;     // of products that do not wait for each other
inline constexpr int kRoofReads = 8;      // of 16 bytes that a thread has under way

struct RoofArguments {
  const void* data;      // [rounds, kRoofReads, threads] words of 16 bytes, which reads reads
  std::uint32_t* out;    // [threads] what came of it, so that nothing is left out
  std::int32_t rounds;   // of reads
  std::int32_t repeats;  // of products
};

}  // namespace moesaic::cuda
