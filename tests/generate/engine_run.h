#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/generate/step_engine.h"
#include "tests/support/test_engine.h"

namespace moesaic {

/// A small model of tests/data/models for tests of the step engine.
[[nodiscard]] EngineSetup small_model(const std::string& name = "qwen2_moe-v4");

/// Some of its tokens, the first ones of an endless text.
[[nodiscard]] std::vector<std::int32_t> random_tokens(std::uint64_t seed, std::size_t length);
/// `common` tokens that all have, and some of its own; two new ones.
[[nodiscard]] Request request_with(std::size_t common, std::uint64_t number, std::size_t own = 3);

/// Request number `index` of an endless series: prompts of 1 to 24 tokens, sampling of all kinds,
/// up to 12 new tokens, log-probabilities of some.
[[nodiscard]] Request request_number(std::uint64_t index);

/// The new tokens of request_number(0), ..., request_number(count - 1), each run alone on one rank.
[[nodiscard]] std::vector<std::vector<std::int32_t>> tokens_alone(std::size_t count);

/// What rank 0 does with an engine, and what it hears.
class EngineRun {
 public:
  explicit EngineRun(StepEngine& engine) : engine_(engine) {}

  [[nodiscard]] StepEngine& engine() { return engine_; }
  RequestId submit(Request request) { return engine_.submit(std::move(request)); }
  void step();
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  /// Steps until no request is open.
  void finish() {
    while (engine_.busy()) step();
  }

  [[nodiscard]] const std::vector<Finished>& finished() const { return finished_; }
  [[nodiscard]] bool has_finished(RequestId id) const;
  [[nodiscard]] const Finished& of(RequestId id) const;
  /// The tokens and the text of a request as they were told, step by step.
  [[nodiscard]] std::vector<std::int32_t> told_tokens(RequestId id) const;
  [[nodiscard]] std::string told_text(RequestId id) const;

 private:
  StepEngine& engine_;
  std::vector<NewToken> tokens_;
  std::vector<Finished> finished_;
};

/// What requests got that were submitted at once.
struct RunOutcome {
  std::vector<std::vector<std::int32_t>> tokens;  // of the requests
  StepStatistics statistics;
};
[[nodiscard]] RunOutcome run_requests(int ranks, const EngineSetup& model,
                                      const StepOptions& options,
                                      const std::vector<Request>& requests);

/// Loads `model` on `ranks` threads and calls body(run) on rank 0; then dismisses the other ranks.
void run_engine(int ranks, const EngineSetup& model, const StepOptions& options,
                const std::function<void(EngineRun& run)>& body);

}  // namespace moesaic
