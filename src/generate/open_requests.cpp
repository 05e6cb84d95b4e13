#include "src/generate/open_requests.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "src/model/finite_rows.h"

namespace moesaic {

namespace {

std::string place_of(std::int64_t layer) {
  if (layer == FiniteRows::kEmbedding) return "the embedding";
  if (layer == SequenceNews::kOutputMatrix) return "the output matrix";
  return fmt::format("layer {}", layer);
}

}  // namespace

void require_undamaged(const Finished& finished, std::string_view what) {
  if (!finished.damage) return;
  fail(ErrorKind::file,
       "{}: {} gives values that are not finite at position {}: damaged weights, or an overflow",
       what, finished.damage->place, finished.damage->position);
}

void OpenRequests::open(RequestId id, const Request& request) {
  Open& entry = open_[id];
  if (tokenizer_ != nullptr && request.max_new_tokens > 0) {
    entry.stream.emplace(*tokenizer_, request.tokens, request.stop_strings);
  }
}

std::optional<Finished> OpenRequests::cancel(RequestId id) {
  if (!contains(id)) return std::nullopt;
  return finish(id, StopReason::cancelled);
}

OpenRequests::Outcome OpenRequests::take(const SequenceNews& news,
                                         std::span<const TokenLogprob> logprobs) {
  Outcome outcome;
  const auto found = open_.find(news.request);
  if (found == open_.end()) return outcome;
  Open& entry = found->second;
  const bool is_stop_token = news.end == SequenceNews::End::end_of_sequence;
  if (news.token != SequenceNews::kNoToken && !is_stop_token) {
    const auto end = std::ranges::find(logprobs, SequenceNews::kNoToken, &TokenLogprob::token);
    outcome.token = {.request = news.request,
                     .token = news.token,
                     .text = {},
                     .logprobs = {logprobs.begin(), end}};
    entry.tokens.push_back(news.token);
    if (end != logprobs.begin()) entry.logprobs.push_back(outcome.token->logprobs);
    if (entry.stream) outcome.token->text = entry.stream->push(news.token);
    entry.text += outcome.token->text;
  }
  if (news.end == SequenceNews::End::damaged) {
    outcome.finished = finish(news.request, StopReason::damaged);
    outcome.finished->damage = {.position = news.position, .place = place_of(news.layer)};
  } else if (entry.stream && entry.stream->stopped_by()) {
    outcome.finished = finish(news.request, StopReason::stop_string);
  } else if (news.end != SequenceNews::End::none) {
    outcome.finished =
        finish(news.request, is_stop_token ? StopReason::end_of_sequence : StopReason::length);
    if (is_stop_token && outcome.finished->reason == StopReason::end_of_sequence) {
      outcome.finished->stop_token = news.token;
    }
  }
  return outcome;
}

/// What the decoder has held back may still complete a stop string.
Finished OpenRequests::finish(RequestId id, StopReason reason) {
  Open entry = std::move(open_.extract(id).mapped());
  Finished finished{.request = id,
                    .reason = reason,
                    .tokens = std::move(entry.tokens),
                    .logprobs = std::move(entry.logprobs),
                    .text = std::move(entry.text),
                    .rest = entry.stream ? entry.stream->finish() : "",
                    .stop_token = {},
                    .stop_string = {},
                    .damage = {}};
  finished.text += finished.rest;
  const bool may_stop = reason != StopReason::cancelled && reason != StopReason::damaged;
  if (entry.stream && entry.stream->stopped_by() && may_stop) {
    finished.reason = StopReason::stop_string;
    finished.stop_string = entry.stream->stopped_by();
  }
  return finished;
}

}  // namespace moesaic
