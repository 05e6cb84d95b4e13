// How a request begins: as another one does, as far as that one is computed.

#include <algorithm>
#include <utility>

#include "src/generate/rank_sequences.h"

namespace moesaic {
namespace {

/// Fewer positions are computed sooner than waited for, or than a page is copied.
constexpr std::int64_t kLeastShared = 32;

}  // namespace

RankSequences::Begin RankSequences::begin(std::size_t index) {
  Active& sequence = sequences_[index];
  while (pool_.state_bytes() > free_bytes()) {  // before a beginning is found: none may go then
    if (!forget_one()) return Begin::waits_for_memory;
  }
  const Beginning beginning = find_beginning(index);
  if (beginning.grows) return Begin::waits_for_another;
  const auto have_memory = [&] {
    // To each of the others those are left that its known tokens take, and one that it may still.
    std::int64_t others = 0;
    for (const Active& active : sequences_) {
      if (&active == &sequence || active.cache.prompt_length() == 0) continue;
      const std::int64_t most = most_positions(active.prompt_tokens, active.request);
      others += std::max<std::int64_t>(active.cache.pages_needed(active.known()),
                                       active.cache.pages_needed(most) > 0 ? 1 : 0);
    }
    const std::int64_t pages = sequence.cache.pages_needed(
        std::min(sequence.known() + 1, most_positions(sequence.prompt_tokens, sequence.request)));
    return (pages + others) * pool_.page_bytes() <= free_bytes();
  };
  sequence.cache = pool_.make_sequence(sequence.prompt_tokens);
  std::int64_t shared = 0;
  if (beginning.of != nullptr) {
    shared = sequence.cache.share_prefix(*beginning.of, beginning.positions);
    beginnings_.renew(beginning.of);
  }
  while (!have_memory()) {
    if (forget_one()) continue;
    sequence.cache = {};
    return Begin::waits_for_memory;
  }
  pass_.work.shared_positions += shared;
  sequence.fork = next_fork(index);
  return Begin::done;
}

RankSequences::Beginning RankSequences::find_beginning(std::size_t index) const {
  Beginning best;
  if (options_.kept_sequences == 0) return best;
  const bool whole = pool_.state_bytes() > 0;  // states belong to the last position alone
  const Active& sequence = sequences_[index];
  std::int64_t coming = 0;
  const auto look = [&](const std::vector<std::int32_t>& tokens, const Sequence& cache) {
    const std::int64_t common =
        std::min(common_positions(tokens, sequence.request.tokens), sequence.most_shared());
    const std::int64_t there = std::min(common, cache.size());
    if (there > best.positions && (!whole || there == cache.size())) {
      best = {.of = &cache, .positions = there};
    }
    return common;
  };
  for (const KeptSequences* const kept : {&ended_, &beginnings_}) {
    for (const auto& [tokens, cache] : kept->entries()) {
      if (can_share(cache.prompt_length(), sequence.prompt_tokens)) (void)look(tokens, cache);
    }
  }
  bool is_oldest = true;  // of the prompts
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Active& other = sequences_[i];
    // It has its tokens before this one.
    const bool goes_first = !other.generates() && (!options_.short_prompts_first || is_oldest ||
                                                   other.rest() <= sequence.rest());
    is_oldest &= other.generates();
    if (i == index || !can_share(other.prompt_tokens, sequence.prompt_tokens)) continue;
    const std::int64_t common = look(other.request.tokens, other.cache);
    if (i > index || !goes_first) continue;
    if (!whole) {
      coming = std::max(coming, common);
    } else if (other.comes_to_fork() && other.fork <= common) {
      coming = std::max(coming, other.fork);
    }
  }
  const bool grows = coming > best.positions && coming >= kLeastShared;
  if (best.positions < kLeastShared) best = {};
  best.grows = grows;
  return best;
}

std::int64_t RankSequences::next_fork(std::size_t index) const {
  std::int64_t fork = 0;
  if (options_.kept_sequences == 0 || pool_.state_bytes() == 0) return fork;
  const Active& sequence = sequences_[index];
  const auto look = [&](const std::vector<std::int32_t>& tokens, std::int64_t prompt_tokens,
                        std::int64_t most) {
    if (!can_share(prompt_tokens, sequence.prompt_tokens)) return;
    const std::int64_t common = std::min(common_positions(tokens, sequence.request.tokens), most);
    if (common < sequence.cache.size() + kLeastShared) return;
    if (fork == 0 || common < fork) fork = common;
  };
  // What comes after these two may begin alike.
  for (const auto& [tokens, cache] : ended_.entries()) {
    look(tokens, cache.prompt_length(), sequence.most_shared());
  }
  for (const Active& other : sequences_) {
    if (&other == &sequence) continue;
    const bool waits = other.cache.size() == 0;
    look(other.request.tokens, other.prompt_tokens,
         waits ? other.most_shared() : sequence.most_shared());
  }
  return fork;
}

void RankSequences::keep_beginning(Active& sequence) {
  const std::int64_t positions = std::exchange(sequence.fork, 0);
  sequence.fork = next_fork(static_cast<std::size_t>(&sequence - sequences_.data()));
  // And the page in which the sequences part.
  while (pool_.state_bytes() + pool_.page_bytes() > free_bytes()) {
    if (!ended_.drop_oldest()) return;
  }
  Sequence cache = pool_.make_sequence(sequence.prompt_tokens);
  cache.share_prefix(sequence.cache, positions);
  const auto& tokens = sequence.request.tokens;
  beginnings_.add({tokens.begin(), tokens.begin() + positions}, std::move(cache));
}

}  // namespace moesaic
