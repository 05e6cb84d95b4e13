#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace moesaic {

// Tokenizers are foreign data: a few of their steps, one behind the other, could make terabytes of
// a word.

/// A text may grow so many times, and by so much besides: a letter that stands for a phrase has
/// 11 times its bytes in NFKD.
inline constexpr std::size_t kMostGrowth = 64;
inline constexpr std::size_t kFreeGrowth = std::size_t{64} << 10;

/// The most that a stage may make of a text of so many bytes, or tokens.
[[nodiscard]] constexpr std::size_t most_growth(std::size_t size) noexcept {
  return kMostGrowth * size + kFreeGrowth;
}

/// A part of tokenizer.json, and what it counts.
struct GrowingStage {
  std::string_view part;
  std::string_view unit;
};

/// Throws Error{file} for more than `most`.
inline void require_growth(std::size_t size, std::size_t most, const GrowingStage& stage) {
  require(size <= most, ErrorKind::file,
          "the {} of the tokenizer makes more than {} {} of a text, {} times as many as it had",
          stage.part, most, stage.unit, kMostGrowth);
}

}  // namespace moesaic
