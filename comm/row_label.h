#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace moesaic {

/// What an exchange is about, in the words of its caller. It travels with the rows, so that ranks
/// in different places are told at once, and stands in messages. Trivial, so that it can travel.
struct RowLabel {
  std::int64_t step = 0;         // of the engine; of training, a pass of a micro-batch
  std::int32_t layer = 0;        // -1: in none
  std::array<char, 12> phase{};  // ends with a zero

  bool operator==(const RowLabel&) const = default;
  /// The same place, another phase of at most 11 characters.
  [[nodiscard]] RowLabel at(std::string_view name) const {
    RowLabel label{step, layer, {}};
    name.copy(label.phase.data(), label.phase.size() - 1);
    return label;
  }
  /// "pass 12, layer 3, results"; "loading" before the first step.
  [[nodiscard]] std::string text() const;
};

}  // namespace moesaic
