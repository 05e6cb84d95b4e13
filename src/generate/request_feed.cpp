#include "src/generate/request_feed.h"

#include <utility>

namespace moesaic {
namespace {

/// Takes one step; returns whether another follows.
bool take_step(StepEngine& engine, const RequestFeed& feed) {
  StepResult result = engine.step();
  for (const NewToken& token : result.tokens) {
    if (feed.on_token) feed.on_token(token);
  }
  for (const LogitsRows& rows : result.logits) {
    if (feed.on_logits) feed.on_logits(rows);
  }
  for (Finished& finished : result.finished) {
    if (feed.on_finished) feed.on_finished(std::move(finished));
  }
  return !result.dismissed;
}

}  // namespace

void run_requests(StepEngine& engine, const RequestFeed& feed) {
  if (!engine.submits()) {
    while (take_step(engine, feed)) continue;
    return;
  }
  for (bool more = true; more || engine.busy();) {
    while (more && engine.room() > 0) {
      std::optional<Request> request = feed.next();
      more = request.has_value();
      if (more) engine.submit(std::move(*request));
    }
    if (engine.busy()) take_step(engine, feed);
  }
  engine.dismiss();
  take_step(engine, feed);
}

}  // namespace moesaic
