#include "src/generate/scorer.h"

#include <algorithm>
#include <cmath>

#include "src/generate/gather_entries.h"
#include "src/generate/request_feed.h"
#include "src/generate/score_order.h"

namespace moesaic {
namespace {

/// One token's score on its way to rank 0. Travels between ranks as it stands.
struct SentScore {
  RequestId window = 0;
  std::int64_t token = 0;  // of the window
  TokenScore score;
};

std::int64_t rank_of(std::span<const float> logits, std::int32_t token) {
  const float own = logits[static_cast<std::size_t>(token)];
  const auto before = logits.first(static_cast<std::size_t>(token));
  const auto after = logits.subspan(static_cast<std::size_t>(token) + 1);
  return 1 + std::ranges::count_if(before, [own](float other) { return other >= own; }) +
         std::ranges::count_if(after, [own](float other) { return other > own; });
}

/// Scores of the tokens that `rows` are about, in their order.
void add_scores(const Compute& compute, const LogitsRows& rows, std::vector<SentScore>& sent) {
  const std::int64_t known = std::ssize(rows.tokens) - 1 - rows.first;
  const std::int64_t count = std::min(rows.logits.rows(), known);
  const std::size_t begin = sent.size();
  sent.resize(begin + static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  compute.pool->for_each(count, 1, [&](std::int64_t row) {
    const std::int64_t next = rows.first + row + 1;
    const std::int32_t token = rows.tokens[static_cast<std::size_t>(next)];
    const std::span<const float> logits = rows.logits.row(row);
    const float log_sum = compute.vector->log_sum_exp(logits.data(), rows.logits.cols());
    sent[begin + static_cast<std::size_t>(row)] = {
        .window = rows.request,
        .token = next,
        .score = {.log_probability =
                      static_cast<double>(rows.logits(row, token)) - static_cast<double>(log_sum),
                  .rank = rank_of(logits, token)}};
  });
}

void take(ScoreOrder& order, const std::vector<SentScore>& scores) {
  for (const SentScore& entry : scores) {
    if (std::isfinite(entry.score.log_probability)) {
      order.take(entry.window, entry.score);
    } else {
      order.damage(entry.window, entry.token - 1, "the output matrix");
    }
  }
}

/// Windows before the damaged one may still turn out to be damaged, too.
void cancel_after_damage(const ScoreOrder& order, StepEngine& engine) {
  if (!order.is_damaged()) return;
  for (RequestId id = order.damaged_window(); id < order.num_requests(); ++id) engine.cancel(id);
}

/// Of rank 0.
RequestFeed feed_of(ScoreOrder& order) {
  return {.next = [&] { return order.next(); },
          .on_token = {},
          .on_finished =
              [&](const Finished& window) {
                if (window.reason == StopReason::length) order.finish(window.request);
              },
          .on_damaged =
              [&](const Finished& window) {
                order.damage(window.request, window.damage->position, window.damage->place);
              }};
}

}  // namespace

void DocumentScore::add(const TokenScore& token) {
  loss -= token.log_probability;
  is_greedy = is_greedy && token.rank == 1;
  ++predicted_tokens;
}

DocumentScore tell_known(std::span<const ScoreDocument> documents, const ScoreEvents& events) {
  ScoreOrder order(documents, events);
  order.tell();
  return order.total();
}

ScoreResult score(Transformer& transformer, Communicator& world,
                  std::span<const ScoreDocument> documents, const StepOptions& options,
                  const ScoreEvents& events) {
  StepEngine engine(transformer, world, options);
  ScoreOrder order(documents, events);
  if (engine.submits()) order.tell();
  RequestFeed feed = engine.submits() ? feed_of(order) : RequestFeed{};
  feed.on_step = [&](std::span<const LogitsRows> logits, bool /*wants_logits*/) {
    std::vector<SentScore> scores;
    for (const LogitsRows& rows : logits) {
      add_scores(transformer.compute(), rows, scores);
      if (events.on_logits) events.on_logits(rows);
    }
    scores = gather_entries(world, std::move(scores));
    if (!engine.submits()) return;
    take(order, scores);
    cancel_after_damage(order, engine);
    order.tell();
  };
  ScoreResult result;
  result.complete = run_requests(engine, feed);
  result.total = order.total();
  result.damage = order.found_damage();
  result.statistics = engine.statistics();
  return result;
}

}  // namespace moesaic
