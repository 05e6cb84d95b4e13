#include "src/model/half_batches.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace moesaic {
namespace {

/// Rows [first, first + count) of `batch`, in the memory that `part` has.
void take_rows(const Batch& batch, std::int64_t first, std::int64_t count, Batch& part) {
  part.token_ids.assign(batch.token_ids.begin() + first, batch.token_ids.begin() + first + count);
  part.tokens.assign(batch.tokens.begin() + first, batch.tokens.begin() + first + count);
  part.sequences.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    const std::int64_t begin = std::max(first, sequence.first_row);
    const std::int64_t end = std::min(first + count, sequence.first_row + sequence.num_rows);
    if (begin >= end) continue;
    part.sequences.push_back({.sequence = sequence.sequence,
                              .first_row = begin - first,
                              .num_rows = end - begin,
                              .position = sequence.position + begin - sequence.first_row});
  }
}

}  // namespace

void halve(const Batch& batch, std::array<Batch, 2>& halves) {
  const std::int64_t early = (batch.rows() + 1) / 2;
  take_rows(batch, 0, early, halves[0]);
  take_rows(batch, early, batch.rows() - early, halves[1]);
}

int HalfBatchRule::class_of(std::int64_t rows) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)));
}

bool HalfBatchRule::wants_halves(std::int64_t rows) const {
  const auto found = classes_.find(class_of(rows));
  if (rows < kLeastRows || found == classes_.end()) return false;
  const auto& [passes, seconds_a_row] = found->second;
  return passes < kHalved.size() ? kHalved[passes] : seconds_a_row[1] < seconds_a_row[0];
}

void HalfBatchRule::add(std::int64_t rows, double seconds) {
  if (rows < kLeastRows) return;
  Class& about = classes_[class_of(rows)];
  const std::size_t pass = about.passes;
  if (pass >= kHalved.size()) return;
  ++about.passes;
  if (pass == 0) return;
  about.seconds_a_row[kHalved[pass] ? 1 : 0] += seconds / static_cast<double>(rows);
}

}  // namespace moesaic
