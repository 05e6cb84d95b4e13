#include "launch/verbs/arriving_prompts.h"

#include <chrono>
#include <utility>

namespace moesaic {
namespace {

/// A small part of any --timeout: the other ranks hear of rank 0 so often.
constexpr std::chrono::milliseconds kIdleWait(300);
/// For lines that give no request, being bad or done already.
constexpr std::chrono::milliseconds kLongestLook(100);

}  // namespace

void add_request(const ContextLimit& limit, BadPrompts bad, Prompt prompt,
                 std::vector<std::int32_t> tokens, RequestList& requests) {
  const auto check = [&](std::int64_t length, std::int64_t new_tokens) {
    require_context(limit, length, new_tokens, prompt.where);
  };
  const auto add = [&] { requests.add(prompt, std::move(tokens), check); };
  if (!prompt.error) try_prompt(prompt.error, bad, add);
  if (prompt.error) requests.add_bad(std::move(prompt));
}

ArrivingPrompts::ArrivingPrompts(const Runtime& runtime, const Parts& parts, ContextLimit limit)
    : runtime_(runtime),
      parts_(parts),
      limit_(std::move(limit)),
      bad_(bad_prompts(runtime.options())) {
  parts_.requests.set_context(limit_.tokens);
}

std::optional<Request> ArrivingPrompts::next() {
  const auto until = PromptStream::Clock::now() + kLongestLook;
  while (!parts_.pending.has_next()) {
    is_behind_ = PromptStream::Clock::now() > until;
    if (is_behind_) return std::nullopt;
    std::optional<Prompt> prompt = stream_.next(until);
    is_behind_ = stream_.has_left_off();
    if (!prompt) return std::nullopt;
    add(std::move(*prompt));
  }
  return parts_.pending.next();
}

void ArrivingPrompts::add(Prompt prompt) {
  if (prompt.error && bad_ == BadPrompts::refuse) throw *prompt.error;
  const Options& options = runtime_.options();
  prompt.tells_checksum = options.out.has_value();
  std::vector<std::int32_t> tokens =
      encode_prompt(prompt, parts_.input, options, parts_.model.config.vocab_size, bad_);
  add_request(limit_, bad_, std::move(prompt), std::move(tokens), parts_.requests);
  parts_.pending.add_new();
}

bool ArrivingPrompts::may_come(bool idle) const {
  if (is_behind_) return true;
  if (stream_.has_ended()) return false;
  if (idle) stream_.wait(kIdleWait);
  return true;
}

}  // namespace moesaic
