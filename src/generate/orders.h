#pragma once

#include <vector>

#include "comm/communicator.h"
#include "src/generate/request.h"

namespace moesaic {

/// What rank 0 tells the other ranks before a step.
struct Orders {
  struct Submission {
    RequestId id = 0;
    Request request;
  };
  std::vector<Submission> submitted;
  std::vector<RequestId> dropped;  // of those submitted, now or earlier
  bool dismissed = false;          // the other ranks leave

  [[nodiscard]] bool empty() const noexcept {
    return submitted.empty() && dropped.empty() && !dismissed;
  }
};

/// The orders of rank 0 reach all, without the stop strings, which it alone can look for: a small
/// message, and a second one if there is news. Collective.
void broadcast_orders(Communicator& world, Orders& orders);

}  // namespace moesaic
