#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "src/model/batch.h"

namespace moesaic {

/// Overwrites `halves` by the rows of a batch before its middle, and the others: earlier positions
/// of a sequence first.
void halve(const Batch& batch, std::array<Batch, 2>& halves);

/// What HalfBatches::automatic does (src/moe/moe_options.h), from times measured in the run. Passes
/// that have about as many rows (from one power of two to the next) are a class. Its first pass is
/// whole and does not count; the next four are tried whole, halved, halved, whole, and what took
/// less a row is done from then on. All ranks that are told the same do the same.
class HalfBatchRule {
 public:
  /// Fewer rows are never halved: each half would read about as many weights as the whole.
  static constexpr std::int64_t kLeastRows = 64;

  /// `rows`: the most of any rank.
  [[nodiscard]] bool wants_halves(std::int64_t rows) const;
  /// A pass of this class took so long on the slowest rank.
  void add(std::int64_t rows, double seconds);

 private:
  /// What is tried, pass by pass.
  static constexpr std::array kHalved = {false, false, true, true, false};
  struct Class {
    std::size_t passes = 0;
    std::array<double, 2> seconds_a_row{};  // whole; halved
  };
  [[nodiscard]] static int class_of(std::int64_t rows);

  std::map<int, Class> classes_;
};

}  // namespace moesaic
