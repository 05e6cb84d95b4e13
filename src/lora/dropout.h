#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "base/counter_random.h"

namespace moesaic {

/// Dropout of the inputs of adapters, as PEFT's lora_dropout: y += scale / (1 - share) * ((x *
/// mask) A^T) B^T, where each element of the mask is 0 with probability `share`, else 1. A mask
/// follows from the keys of its row and its adapter alone: it is drawn wherever it is needed, never
/// kept.
struct Dropout {
  double share = 0;  ///< in [0, 1)
  /// [rows] of each row (of each sample where a pass is started); none: nothing is left out
  std::span<const std::uint64_t> keys{};

  [[nodiscard]] bool is_on() const noexcept { return share > 0; }
  /// What the rest counts for.
  [[nodiscard]] float gain() const noexcept { return static_cast<float>(1 / (1 - share)); }
};

/// The key of a sample: place `sample` of the step.
[[nodiscard]] constexpr std::uint64_t dropout_sample_key(std::uint64_t seed, std::int64_t step,
                                                         std::int64_t sample) {
  constexpr std::uint64_t kPurpose = 0x64726f706f7574U;  // "dropout", unlike that of any module
  return CounterRandom(seed)
      .at(kPurpose)
      .at(static_cast<std::uint64_t>(step))
      .bits(static_cast<std::uint64_t>(sample));
}

/// The key of the row of a sample's token.
[[nodiscard]] constexpr std::uint64_t dropout_row_key(std::uint64_t sample_key,
                                                      std::int64_t token) {
  return CounterRandom(sample_key).bits(static_cast<std::uint64_t>(token));
}

/// The mask of one row for one adapter.
class DropoutMask {
 public:
  /// `module`: Adapter::key.
  DropoutMask(double share, std::uint64_t row, std::uint64_t module)
      : random_(CounterRandom(row).at(module)),
        limit_(static_cast<std::uint64_t>(std::ldexp(share, 32))) {}

  /// Whether an element counts. 64 random bits serve two.
  [[nodiscard]] bool keeps(std::int64_t element) const {
    const std::uint64_t bits = random_.bits(static_cast<std::uint64_t>(element) / 2);
    return (element % 2 == 0 ? bits & kHalf : bits >> 32U) >= limit_;
  }

  /// to = mask * from.
  template <typename T>
  void copy(std::span<const T> from, T* to) const {
    for_each(from.size(), [&](std::size_t i, bool keeps) { to[i] = keeps ? from[i] : T{}; });
  }
  /// to += mask * from.
  void add(std::span<const float> from, float* to) const {
    for_each(from.size(), [&](std::size_t i, bool keeps) { to[i] += keeps ? from[i] : 0.0F; });
  }

 private:
  static constexpr std::uint64_t kHalf = 0xffffffffU;

  template <typename Call>
  void for_each(std::size_t count, Call&& call) const {
    for (std::size_t i = 0; i < count; i += 2) {
      const std::uint64_t bits = random_.bits(i / 2);
      call(i, (bits & kHalf) >= limit_);
      if (i + 1 < count) call(i + 1, bits >> 32U >= limit_);
    }
  }

  CounterRandom random_;
  std::uint64_t limit_;
};

}  // namespace moesaic
