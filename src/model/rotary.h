#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/rope_config.h"

namespace moesaic {

/// Angles of a rotary position embedding, pair i having frequency i whichever elements it is of.
/// Frequencies and their scalings as in transformers/modeling_rope_utils.py.
class Rotary {
 public:
  explicit Rotary(const RopeConfig& config);

  /// Pairs that are rotated: rotary_dim / 2.
  [[nodiscard]] std::int64_t half() const noexcept { return half_; }
  /// Cosines and sines [half] of one position, attention factor included. `length` is the sequence
  /// length that dynamic and longrope scalings see (Sequence::rope_length).
  void angles(std::int64_t position, std::int64_t length, std::span<float> cosines,
              std::span<float> sines) const;

 private:
  RopeConfig config_;
  std::int64_t half_;
  std::vector<float> fixed_;         // of types that do not depend on the length
  std::vector<float> long_context_;  // longrope beyond the original length
};

}  // namespace moesaic
