#pragma once

#include <optional>

#include "launch/input/requests.h"
#include "launch/input/token_prompts.h"
#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/verbs/pending_requests.h"
#include "launch/verbs/prompt_stream.h"

namespace moesaic {

/// Adds a prompt with its tokens to the requests: one that cannot be run with its error.
void add_request(const ContextLimit& limit, BadPrompts bad, Prompt prompt,
                 std::vector<std::int32_t> tokens, RequestList& requests);

/// Rank 0's prompts of the standard input, which become requests as they come.
class ArrivingPrompts {
 public:
  struct Parts {
    const OpenModel& model;
    const TokenPrompts& input;  // makes tokens of them
    RequestList& requests;      // gets theirs
    PendingRequests& pending;   // tells which are left
  };
  /// All must outlive this. Texts may have so many tokens.
  ArrivingPrompts(const Runtime& runtime, const Parts& parts, ContextLimit limit);

  /// The next request that is there, if any, and is found soon. Throws Error{file} or Error{usage}
  /// for the first bad prompt with --strict, and what PromptStream and ResultFile do.
  [[nodiscard]] std::optional<Request> next();
  /// Whether one may still come; an `idle` caller waits for it a moment.
  [[nodiscard]] bool may_come(bool idle) const;

 private:
  void add(Prompt prompt);

  const Runtime& runtime_;
  Parts parts_;
  ContextLimit limit_;
  BadPrompts bad_;
  PromptStream stream_;
  bool is_behind_ = false;  // next() has left lines that are there
};

}  // namespace moesaic
