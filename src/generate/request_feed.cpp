#include "src/generate/request_feed.h"

#include <fmt/core.h>

#include <utility>

namespace moesaic {
namespace {

/// Whether to go on after a step.
enum class GoOn { yes, dismissed, stop_wanted };

std::string name_of(const RequestFeed& feed, RequestId request) {
  return feed.name ? feed.name(request) : fmt::format("prompt {}", request + 1);
}

GoOn take_step(StepEngine& engine, const RequestFeed& feed) {
  StepResult result = engine.step();
  for (const NewToken& token : result.tokens) {
    if (feed.on_token) feed.on_token(token);
  }
  for (Finished& finished : result.finished) {
    if (finished.damage && feed.on_damaged) {
      feed.on_damaged(finished);
      continue;
    }
    require_undamaged(finished, name_of(feed, finished.request));
    if (feed.on_finished) feed.on_finished(std::move(finished));
  }
  if (feed.on_step) feed.on_step(result.logits, result.wants_logits);
  if (result.stop_wanted) return GoOn::stop_wanted;
  return result.dismissed ? GoOn::dismissed : GoOn::yes;
}

}  // namespace

bool run_requests(StepEngine& engine, const RequestFeed& feed) {
  if (!engine.submits()) {
    GoOn next = GoOn::yes;
    while (next == GoOn::yes) next = take_step(engine, feed);
    return next == GoOn::dismissed || engine.said_by_first(false);
  }
  for (bool more = true; more || engine.busy();) {
    bool waits = false;
    while (more && !waits && engine.room() > 0) {
      if (std::optional<Request> request = feed.next()) {
        engine.submit(std::move(*request));
      } else {
        waits = more = feed.may_come && feed.may_come(!engine.busy());
      }
    }
    if (feed.unwanted) {
      for (const RequestId id : feed.unwanted()) engine.cancel(id);
    }
    // Also with nothing to do: the other ranks may not think that rank 0 is lost.
    if ((more || engine.busy()) && take_step(engine, feed) == GoOn::stop_wanted) {
      return engine.said_by_first(!more && !engine.busy());
    }
  }
  engine.dismiss();
  (void)take_step(engine, feed);  // in which nothing runs any more
  return true;
}

}  // namespace moesaic
