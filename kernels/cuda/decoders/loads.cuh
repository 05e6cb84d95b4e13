#pragma once

#include <cstdint>

#include "kernels/cuda/mlp_arguments.h"

// A decoder reads a panel of one format:
//
//   panel_bytes(steps, form)
//   Decoder(panel, steps, form, j, column)   of a lane, which has of each step of 32 k those from
//                                            8 j to 8 j + 7, of columns column, ...
//   advance(steps)                           step 0 is then so many steps later
//   load<Columns>(step)                      what weights of a step are made of
//   unpack<Columns>(codes, pairs)            these weights, as pairs of k
//   kAhead, kAheadOfMany                     steps that mma kernels read before they need them
//
// A lane reads what neighbouring columns have in one place of a panel by one instruction.

namespace moesaic::cuda {

/// Neighbouring words of a panel's line.
template <int Columns>
struct Words;
template <>
struct Words<1> {
  std::uint32_t word[1];
};
template <>
struct alignas(8) Words<2> {
  std::uint32_t word[2];
};

template <>
struct alignas(16) Words<4> {
  std::uint32_t word[4];
};

template <int Columns>
__device__ __forceinline__ Words<Columns> load_words(const std::uint8_t* from) {
  Words<Columns> words;
  if constexpr (Columns == 1) {
    words.word[0] = *reinterpret_cast<const std::uint32_t*>(from);
  } else if constexpr (Columns == 2) {
    const uint2 both = *reinterpret_cast<const uint2*>(from);
    words.word[0] = both.x;
    words.word[1] = both.y;
  } else {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    words.word[0] = all.x;
    words.word[1] = all.y;
    words.word[2] = all.z;
    words.word[3] = all.w;
  }
  return words;
}

/// Neighbouring bytes, the first in the low byte.
template <int Columns>
__device__ __forceinline__ std::uint32_t load_bytes(const std::uint8_t* from) {
  if constexpr (Columns == 1) return *from;
  return *reinterpret_cast<const std::uint16_t*>(from);
}

/// Two bytes of each of neighbouring columns.
template <int Columns>
__device__ __forceinline__ std::uint32_t load_code_pairs(const std::uint8_t* from) {
  if constexpr (Columns == 1) return *reinterpret_cast<const std::uint16_t*>(from);
  return *reinterpret_cast<const std::uint32_t*>(from);
}

/// The weights of a step that a decoder has, as pairs of k.
template <int Columns, typename Decoder>
__device__ __forceinline__ void decode(const Decoder& decoder, int step,
                                       std::uint32_t (&pairs)[Columns][4]) {
  decoder.template unpack<Columns>(decoder.template load<Columns>(step), pairs);
}

}  // namespace moesaic::cuda
