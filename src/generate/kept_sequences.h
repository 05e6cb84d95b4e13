#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "src/model/sequence.h"

namespace moesaic {

/// Positions that two texts have in common from the start.
[[nodiscard]] std::int64_t common_positions(std::span<const std::int32_t> a,
                                            std::span<const std::int32_t> b);

/// Sequences that nobody works on, kept for a while: the next request may begin as they do.
class KeptSequences {
 public:
  struct Entry {
    std::vector<std::int32_t> tokens;
    Sequence cache;
  };

  /// At most `limit` of them.
  explicit KeptSequences(std::int64_t limit) : limit_(limit) {}

  /// In place of the oldest one if there are as many as there may be.
  void add(std::vector<std::int32_t> tokens, Sequence cache);
  /// Gives the memory of the oldest one back; false if there is none.
  bool drop_oldest();
  /// A request has begun as this one does, if it is here: it is now the youngest.
  void renew(const Sequence* cache);
  [[nodiscard]] const std::deque<Entry>& entries() const noexcept { return entries_; }

 private:
  std::int64_t limit_;
  std::deque<Entry> entries_;  // the oldest first
};

}  // namespace moesaic
