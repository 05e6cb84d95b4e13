#include "src/generate/rank_sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moesaic {

RankSequences::RankSequences(Transformer& transformer, std::int64_t batch_tokens)
    : transformer_(transformer),
      pool_(transformer.config(), transformer.precision()),
      batch_tokens_(batch_tokens) {
  require(batch_tokens >= 1, ErrorKind::usage, "--batch-size must be at least 1, not {}",
          batch_tokens);
}

void RankSequences::add(RequestId id, Request request) {
  const auto prompt = static_cast<std::int64_t>(request.tokens.size());
  std::optional<Sampler> sampler;
  if (request.max_new_tokens > 0) {
    sampler.emplace(request.sampling, request.stream, *transformer_.compute().vector);
  }
  sequences_.push_back({.id = id,
                        .request = std::move(request),
                        .prompt_tokens = prompt,
                        .cache = pool_.make_sequence(prompt),
                        .sampler = std::move(sampler)});
}

void RankSequences::remove(RequestId id) {
  std::erase_if(sequences_, [&](const Active& sequence) { return sequence.id == id; });
}

void RankSequences::plan() {
  parts_.clear();
  pass_ = {};
  for (Active& sequence : sequences_) {
    if (!sequence.in_prompt()) plan(sequence, 1);
  }
  pass_.generation_rows = std::ssize(parts_);
  std::int64_t room = batch_tokens_ - pass_.generation_rows;
  for (Active& sequence : sequences_) {
    if (!sequence.in_prompt() || room <= 0) continue;
    plan(sequence, room);
    room -= parts_.back().count;
    pass_.prompt_rows += parts_.back().count;
  }
  chunks_.clear();
  for (const Part& part : parts_) {
    const std::span<const std::int32_t> tokens = part.sequence->request.tokens;
    chunks_.push_back({.sequence = &part.sequence->cache,
                       .tokens = tokens.subspan(static_cast<std::size_t>(part.first),
                                                static_cast<std::size_t>(part.count)),
                       .logits = part.logits});
  }
}

void RankSequences::plan(Active& sequence, std::int64_t room) {
  using Logits = SequenceChunk::Logits;
  Part part{.sequence = &sequence,
            .first = sequence.cache.size(),
            .count = std::min(sequence.rest(), room)};
  const std::int64_t wanted = sequence.request.logits_from;
  const bool samples = sequence.sampler && part.count == sequence.rest();
  if (wanted < part.end() - 1) {
    part.logits = Logits::all;
  } else if (wanted < part.end() || samples) {
    part.logits = Logits::last;
  }
  parts_.push_back(part);
}

void RankSequences::hand_out(const Part& part, MatrixView<const float> rows) {
  const Active& sequence = *part.sequence;
  const std::int64_t first = std::max(part.logits_begin(), sequence.request.logits_from);
  if (first >= part.end()) return;
  pass_.logits.push_back({.request = sequence.id,
                          .first = first,
                          .logits = rows.row_range(first - part.logits_begin(), part.end() - first),
                          .tokens = sequence.request.tokens});
}

const RankPass& RankSequences::forward() {
  std::erase_if(sequences_, [](const Active& sequence) { return sequence.ended; });
  plan();
  const MatrixView<const float> logits = transformer_.forward(chunks_);
  std::vector<std::pair<Active*, std::span<const float>>> at_end;
  std::int64_t row = 0;
  for (const Part& part : parts_) {
    const std::int64_t rows = part.end() - part.logits_begin();
    row += rows;
    if (part.sequence->rest() == 0) {
      at_end.emplace_back(part.sequence, rows > 0 ? logits.row(row - 1) : std::span<const float>());
    }
  }
  pass_.news.resize(at_end.size());
  transformer_.compute().pool->for_each(std::ssize(at_end), 1, [&](std::int64_t i) {
    const auto& [sequence, last] = at_end[static_cast<std::size_t>(i)];
    pass_.news[static_cast<std::size_t>(i)] = go_on(*sequence, last);
  });
  row = 0;
  for (const Part& part : parts_) {
    const std::int64_t rows = part.end() - part.logits_begin();
    hand_out(part, logits.row_range(row, rows));
    row += rows;
  }
  return pass_;
}

SequenceNews RankSequences::go_on(Active& sequence, std::span<const float> logits) const {
  using End = SequenceNews::End;
  Request& request = sequence.request;
  if (!sequence.sampler) {
    sequence.ended = true;
    return {.request = sequence.id, .end = End::length};
  }
  const std::int32_t token = sequence.sampler->sample(logits);
  SequenceNews news{.request = sequence.id, .token = token};
  if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end()) {
    news.end = End::end_of_sequence;
  } else {
    request.tokens.push_back(token);
    const auto length = static_cast<std::int64_t>(request.tokens.size());
    if (length == sequence.prompt_tokens + request.max_new_tokens) news.end = End::length;
  }
  sequence.ended = news.end != End::none;
  return news;
}

}  // namespace moesaic
