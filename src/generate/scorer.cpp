#include "src/generate/scorer.h"

#include <bit>
#include <map>
#include <utility>

#include "base/error.h"
#include "src/generate/request_feed.h"

namespace moesaic {
namespace {

/// The losses of the documents that this rank computes.
class Losses {
 public:
  explicit Losses(const Compute& compute) : compute_(compute) {}

  /// Adds the losses of the tokens that `rows` predict, in their order.
  void add(const LogitsRows& rows) {
    const std::int64_t known = std::ssize(rows.tokens) - 1 - rows.first;
    std::vector<double> losses(static_cast<std::size_t>(std::min(rows.logits.rows(), known)));
    compute_.pool->for_each(std::ssize(losses), 1, [&](std::int64_t row) {
      const auto next = static_cast<std::size_t>(rows.first + row + 1);
      const float log_sum =
          compute_.vector->log_sum_exp(rows.logits.row(row).data(), rows.logits.cols());
      losses[static_cast<std::size_t>(row)] =
          static_cast<double>(log_sum) - static_cast<double>(rows.logits(row, rows.tokens[next]));
    });
    DocumentScore& score = scores_[rows.request];
    for (const double loss : losses) score.loss += loss;
    score.predicted_tokens += std::ssize(losses);
  }

  /// All ranks' documents on all ranks. Each of them is one rank's, so that a sum of bits over the
  /// ranks is a copy. Collective.
  [[nodiscard]] std::vector<DocumentScore> gather(Communicator& world) const {
    std::int64_t count = scores_.empty() ? 0 : scores_.rbegin()->first + 1;
    world.max(std::span(&count, 1));
    std::vector<std::int64_t> bits(static_cast<std::size_t>(2 * count));
    for (const auto& [document, score] : scores_) {
      bits[static_cast<std::size_t>(2 * document)] = std::bit_cast<std::int64_t>(score.loss);
      bits[static_cast<std::size_t>(2 * document + 1)] = score.predicted_tokens;
    }
    world.sum(std::span(bits));
    std::vector<DocumentScore> scores;
    for (std::size_t i = 0; i < bits.size(); i += 2) {
      scores.push_back({std::bit_cast<double>(bits[i]), bits[i + 1]});
    }
    return scores;
  }

 private:
  const Compute& compute_;
  std::map<RequestId, DocumentScore> scores_;
};

}  // namespace

ScoreResult score(Transformer& transformer, Communicator& world,
                  std::span<const std::vector<std::int32_t>> documents, const StepOptions& options,
                  const LogitsSink& sink) {
  StepEngine engine(transformer, world, options);
  Losses losses(transformer.compute());
  std::size_t index = 0;
  const auto next = [&]() -> std::optional<Request> {
    if (index == documents.size()) return std::nullopt;
    const std::vector<std::int32_t>& tokens = documents[index++];
    require(tokens.size() >= 2, ErrorKind::usage, "a text of {} tokens has nothing to predict",
            tokens.size());
    Request request;
    request.tokens = tokens;
    request.logits_from = 0;
    return request;
  };
  const auto add = [&](const LogitsRows& rows) {
    losses.add(rows);
    if (sink) sink(rows);
  };
  const bool complete =
      run_requests(engine, {.next = next, .on_token = {}, .on_finished = {}, .on_logits = add});
  return {
      .documents = losses.gather(world), .statistics = engine.statistics(), .complete = complete};
}

}  // namespace moesaic
