#include "src/generate/rank_sequences.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

namespace moesaic {

PassWork& PassWork::operator+=(const PassWork& other) {
  prompt_rows += other.prompt_rows;
  generation_rows += other.generation_rows;
  shared_positions += other.shared_positions;
  dropped += other.dropped;
  return *this;
}

RankSequences::RankSequences(Transformer& transformer, const RankOptions& options)
    : transformer_(transformer),
      options_(options),
      pool_(transformer.config(), transformer.precision(), options.cache_bytes),
      ended_(options.kept_sequences),
      beginnings_(std::min(options.kept_sequences, RankOptions::kMostBeginnings)) {
  require(options.batch_tokens >= 1, ErrorKind::usage, "--batch-size must be at least 1, not {}",
          options.batch_tokens);
}

std::int64_t RankSequences::most_positions(std::int64_t prompt_tokens, const Request& request) {
  return prompt_tokens + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
}

void RankSequences::check(const Request& request) const {
  const std::int64_t positions = most_positions(std::ssize(request.tokens), request);
  const std::int64_t bytes =
      KvPool::sequence_bytes(transformer_.config(), transformer_.precision(), positions);
  require(bytes <= pool_.max_bytes(), ErrorKind::usage,
          "a request of up to {} tokens needs {} for keys and values, of {} in all", positions,
          format_bytes(bytes), format_bytes(pool_.max_bytes()));
}

void RankSequences::add(RequestId id, Request request) {
  std::optional<Sampler> sampler;
  if (request.max_new_tokens > 0) {
    sampler.emplace(request.sampling, request.stream, *transformer_.compute().vector);
  }
  const std::int64_t prompt_tokens = std::ssize(request.tokens);
  const std::int64_t logits_from = request.logits_from;
  sequences_.push_back({.id = id,
                        .request = std::move(request),
                        .prompt_tokens = prompt_tokens,
                        .cache = {},
                        .sampler = std::move(sampler),
                        .logits_from = logits_from});
}

void RankSequences::retire(Active& sequence) {
  ended_.add(std::move(sequence.request.tokens), std::move(sequence.cache));
}

void RankSequences::remove(RequestId id) {
  const auto found = std::ranges::find(sequences_, id, &Active::id);
  if (found == sequences_.end()) return;
  if (!found->ended) retire(*found);
  sequences_.erase(found);
}

void RankSequences::plan() {
  parts_.clear();
  pass_ = {};
  plan_generation();
  plan_prompts();
  if (parts_.empty() && !sequences_.empty()) plan_oldest();
  chunks_.clear();
  for (const Part& part : parts_) {
    const std::span<const std::int32_t> tokens = part.sequence->request.tokens;
    chunks_.push_back({.sequence = &part.sequence->cache,
                       .tokens = tokens.subspan(static_cast<std::size_t>(part.first),
                                                static_cast<std::size_t>(part.count)),
                       .logits = part.logits});
  }
}

void RankSequences::plan_generation() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    Active& sequence = sequences_[i];
    if (!sequence.generates()) continue;
    if (make_room(i, sequence.known(), GiveWay::younger_ones)) add_part(sequence, 1);
  }
}

bool RankSequences::has_begun(std::size_t index, bool& is_full) {
  if (sequences_[index].cache.size() > 0) return true;
  if (is_full) return false;
  const Begin begun = begin(index);
  is_full = begun == Begin::waits_for_memory;
  return begun == Begin::done;
}

std::int64_t RankSequences::add_prompt(std::size_t index, std::int64_t most) {
  Active& sequence = sequences_[index];
  const std::int64_t count = std::min(sequence.next_rows(), most);
  if (make_room(index, sequence.cache.size() + count, GiveWay::ended_ones)) {
    add_part(sequence, count);
    return count;
  }
  if (sequence.cache.size() == 0) drop(sequence);  // it has not begun
  return 0;
}

void RankSequences::plan_prompts() {
  if (options_.short_prompts_first) return plan_short_prompts();
  std::int64_t room = room_for_prompts();
  bool is_full = false;
  for (std::size_t i = 0; i < sequences_.size() && room > 0; ++i) {
    if (!sequences_[i].generates() && has_begun(i, is_full)) room -= add_prompt(i, room);
  }
}

void RankSequences::plan_short_prompts() {
  prompts_.clear();
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (!sequences_[i].generates()) prompts_.push_back(i);
  }
  std::int64_t room = room_for_prompts();
  if (prompts_.empty() || room <= 0) return;
  bool is_full = false;
  const std::size_t oldest = prompts_.front();
  const bool oldest_goes_on = has_begun(oldest, is_full);
  std::int64_t kept = oldest_goes_on ? std::min((room + 1) / 2, sequences_[oldest].rest()) : 0;
  std::ranges::sort(prompts_, {},
                    [&](std::size_t i) { return std::pair(sequences_[i].rest(), i); });
  for (const std::size_t i : prompts_) {
    if (i == oldest) kept = 0;
    if (room <= kept) continue;
    const bool goes_on = i == oldest ? oldest_goes_on : has_begun(i, is_full);
    if (goes_on) room -= add_prompt(i, room - kept);
  }
}

void RankSequences::plan_oldest() {
  for (Active& other : std::span(sequences_).subspan(1)) drop(other);
  while (forget_one()) continue;
  Active& oldest = sequences_.front();
  const bool begun = oldest.cache.size() > 0 || begin(0) == Begin::done;
  const std::int64_t count = std::min(oldest.next_rows(), options_.batch_tokens);
  require(begun && make_room(0, oldest.cache.size() + count, GiveWay::younger_ones),
          ErrorKind::internal, "the memory of the key-value cache is held by nobody");
  add_part(oldest, count);
}

void RankSequences::add_part(Active& sequence, std::int64_t count) {
  using Logits = SequenceChunk::Logits;
  (sequence.generates() ? pass_.work.generation_rows : pass_.work.prompt_rows) += count;
  Part part{.sequence = &sequence, .first = sequence.cache.size(), .count = count};
  const bool samples = sequence.sampler && count == sequence.rest();
  if (sequence.logits_from < part.end() - 1) {
    part.logits = Logits::all;
  } else if (sequence.logits_from < part.end() || samples) {
    part.logits = Logits::last;
  }
  parts_.push_back(part);
}

bool RankSequences::make_room(std::size_t index, std::int64_t positions, GiveWay who) {
  Sequence& cache = sequences_[index].cache;
  while (cache.pages_needed(positions) * pool_.page_bytes() > free_bytes()) {
    if (forget_one()) continue;
    if (who == GiveWay::ended_ones) return false;
    const std::span<Active> younger = std::span(sequences_).subspan(index + 1);
    const auto last = std::find_if(younger.rbegin(), younger.rend(),
                                   [](const Active& active) { return active.cache.size() > 0; });
    if (last == younger.rend()) return false;
    drop(*last);
  }
  cache.ensure(positions);
  return true;
}

void RankSequences::drop(Active& sequence) {
  if (sequence.cache.size() > 0) ++pass_.work.dropped;
  sequence.cache = {};
  sequence.fork = 0;
}

void RankSequences::hand_out(const Part& part, MatrixView<const float> rows) {
  Active& sequence = *part.sequence;
  const std::int64_t first = std::max(part.logits_begin(), sequence.logits_from);
  if (first >= part.end()) return;
  sequence.logits_from = part.end();
  pass_.logits.push_back({.request = sequence.id,
                          .first = first,
                          .logits = rows.row_range(first - part.logits_begin(), part.end() - first),
                          .tokens = sequence.request.tokens,
                          .logprobs = sequence.request.logprobs});
}

const RankPass& RankSequences::forward() {
  for (Active& sequence : sequences_) {
    if (sequence.ended && !sequence.damaged) retire(sequence);
  }
  std::erase_if(sequences_, [](const Active& sequence) { return sequence.ended; });
  plan();
  const MatrixView<const float> logits = transformer_.forward(chunks_);
  const std::vector<SequenceNews> damaged = end_damaged();
  std::vector<std::pair<Active*, std::span<const float>>> at_end;
  std::int64_t row = 0;
  for (const Part& part : parts_) {
    const std::int64_t rows = part.end() - part.logits_begin();
    row += rows;
    if (part.sequence->damaged) continue;
    if (part.sequence->fork == part.end()) keep_beginning(*part.sequence);
    if (part.sequence->rest() == 0) {
      at_end.emplace_back(part.sequence, rows > 0 ? logits.row(row - 1) : std::span<const float>());
    }
  }
  pass_.news.resize(at_end.size());
  pass_.logprobs.resize(at_end.size());
  transformer_.compute().pool->for_each(std::ssize(at_end), 1, [&](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    const auto& [sequence, last] = at_end[index];
    const SequenceNews news = pass_.news[index] = go_on(*sequence, last);
    if (sequence->damaged) return;
    if (const auto count = sequence->request.logprobs; count && sequence->sampler) {
      pass_.logprobs[index] =
          token_logprobs(last, news.token, *count, *transformer_.compute().vector);
    }
  });
  pass_.news.insert(pass_.news.end(), damaged.begin(), damaged.end());
  row = 0;
  for (const Part& part : parts_) {
    const std::int64_t rows = part.end() - part.logits_begin();
    if (!part.sequence->damaged) hand_out(part, logits.row_range(row, rows));
    row += rows;
  }
  return pass_;
}

std::vector<SequenceNews> RankSequences::end_damaged() {
  std::vector<SequenceNews> news;
  std::int64_t begin = 0;
  for (const Part& part : parts_) {
    for (std::int64_t i = 0; i < part.count && !part.sequence->damaged; ++i) {
      const std::optional<std::int64_t> layer = transformer_.damaged_by(begin + i);
      if (!layer) continue;
      part.sequence->ended = part.sequence->damaged = true;
      news.push_back({.request = part.sequence->id,
                      .end = SequenceNews::End::damaged,
                      .position = part.first + i,
                      .layer = *layer});
    }
    begin += part.count;
  }
  return news;
}

SequenceNews RankSequences::go_on(Active& sequence, std::span<const float> logits) const {
  using End = SequenceNews::End;
  Request& request = sequence.request;
  if (!sequence.sampler) {
    sequence.ended = true;
    return {.request = sequence.id, .end = End::length};
  }
  const std::optional<std::int32_t> token = sequence.sampler->sample(
      logits, {.tokens = request.tokens, .prompt_tokens = sequence.prompt_tokens});
  if (!token) {
    sequence.ended = sequence.damaged = true;
    return {.request = sequence.id,
            .end = End::damaged,
            .position = sequence.known() - 1,
            .layer = SequenceNews::kOutputMatrix};
  }
  SequenceNews news{.request = sequence.id, .token = *token};
  if (std::ranges::find(request.stop_tokens, *token) != request.stop_tokens.end()) {
    news.end = End::end_of_sequence;
  } else {
    request.tokens.push_back(*token);
    const auto length = static_cast<std::int64_t>(request.tokens.size());
    if (length == sequence.prompt_tokens + request.max_new_tokens) news.end = End::length;
  }
  sequence.ended = news.end != End::none;
  return news;
}

}  // namespace moesaic
