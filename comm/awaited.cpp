#include "comm/awaited.h"

namespace moesaic {

std::string RankList::text() const {
  std::string text;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (i > 0) text += i + 1 == ranks_.size() ? " and " : ", ";
    text += std::to_string(ranks_[i]);
  }
  return text;
}

void Awaited::add(const std::string& more, const std::vector<int>& its_ranks) {
  if (!text.empty() && !more.empty()) text += " and ";
  text += more;
  ranks.insert(ranks.end(), its_ranks.begin(), its_ranks.end());
}

void RankBits::add(int rank) noexcept {
  if (rank < 0 || rank >= kMost) return;
  words_[static_cast<std::size_t>(rank / kWordBits)] |= std::uint64_t{1} << (rank % kWordBits);
}

bool RankBits::has(int rank) const noexcept {
  if (rank < 0 || rank >= kMost) return false;
  return (words_[static_cast<std::size_t>(rank / kWordBits)] >> (rank % kWordBits) & 1) != 0;
}

}  // namespace moesaic
