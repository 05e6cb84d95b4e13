#include "src/generate/kept_sequences.h"

#include <algorithm>
#include <utility>

namespace moesaic {

std::int64_t common_positions(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

void KeptSequences::add(std::vector<std::int32_t> tokens, Sequence cache) {
  if (limit_ == 0 || cache.size() == 0) return;
  if (std::ssize(entries_) == limit_) drop_oldest();
  entries_.push_back({std::move(tokens), std::move(cache)});
}

bool KeptSequences::drop_oldest() {
  if (entries_.empty()) return false;
  entries_.pop_front();
  return true;
}

void KeptSequences::renew(const Sequence* cache) {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return &entry.cache == cache; });
  if (found != entries_.end()) std::rotate(found, found + 1, entries_.end());
}

}  // namespace moesaic
