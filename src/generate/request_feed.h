#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/generate/step_engine.h"

namespace moesaic {

/// Requests of rank 0, and who hears of them. Of other ranks, `on_step` alone is used.
struct RequestFeed {
  /// The next request; none when there are no more, or none yet.
  std::function<std::optional<Request>()> next;
  /// Of requests that are not known in advance: asked when there is no next one, tells whether one
  /// may still come. If nothing else is to be done meanwhile (`idle`) it waits for one, but not
  /// nearly as long as the communicator's timeout.
  std::function<bool(bool idle)> may_come{};
  /// Requests that nobody wants any more; asked before each step.
  std::function<std::vector<RequestId>()> unwanted{};
  std::function<void(const NewToken&)> on_token;
  std::function<void(Finished&&)> on_finished;
  /// In the place of on_finished, of damaged requests (Damage); if it is not given, the first one
  /// is an Error{file} on rank 0.
  std::function<void(const Finished&)> on_damaged{};
  /// After each step, when all that it brought is told: its logits of this rank, and whether any
  /// rank may have some; may be collective.
  std::function<void(std::span<const LogitsRows> logits, bool wants_logits)> on_step{};
  /// What errors call a request of next(); "prompt N" by their order if it is not given.
  std::function<std::string(RequestId)> name{};
};

/// Runs all requests of `feed`, of which no more wait at a time than keep the ranks busy. Functions
/// that are not given are not called. Returns false, on all ranks, if it ended before its time
/// because a rank was asked to stop (StepOptions). Collective.
[[nodiscard]] bool run_requests(StepEngine& engine, const RequestFeed& feed);

}  // namespace moesaic
