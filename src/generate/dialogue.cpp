#include "src/generate/dialogue.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// Draws of the answers of one conversation, and of several tries of one answer, have streams of
/// their own; the first answer has that of a first prompt.
std::uint64_t stream_of(std::int64_t answers, std::uint64_t tries) {
  return static_cast<std::uint64_t>(answers) | tries << 32U;
}

}  // namespace

Turn& Turn::operator+=(const Turn& other) {
  prompt_tokens += other.prompt_tokens;
  computed_tokens += other.computed_tokens;
  answer_tokens += other.answer_tokens;
  prompt_seconds += other.prompt_seconds;
  answer_seconds += other.answer_seconds;
  return *this;
}

Dialogue::Dialogue(const DialogueParts& parts, DialogueOptions options)
    : parts_(parts), options_(std::move(options)) {}

void Dialogue::replace(Conversation conversation) {
  conversation_ = std::move(conversation);
  tries_.clear();
}

void Dialogue::ask(const std::string& text) {
  Conversation next = conversation_;
  next.ask(text);
  prepare(std::move(next), false);
}

void Dialogue::ask_again() {
  Conversation next = conversation_;
  require(next.retract_answer(), ErrorKind::usage, "nobody has asked anything yet");
  prepare(std::move(next), true);
}

void Dialogue::prepare(Conversation next, bool is_again) {
  const auto answer = static_cast<std::size_t>(next.answers());
  const std::uint64_t tries = !is_again ? 0 : answer < tries_.size() ? tries_[answer] + 1 : 1;
  const std::string text = parts_.chat_template.render(next.chat()).text;
  std::vector<std::int32_t> tokens = parts_.tokenizer.encode(text, false);
  const std::int64_t count = std::ssize(tokens);
  const std::int64_t room = options_.context_tokens - count;
  require(room > 0, ErrorKind::usage,
          "the conversation has {} tokens with this turn, and the context is {}", count,
          options_.context_tokens);
  const bool is_limited = options_.max_new_tokens != DialogueOptions::kUntilFull;
  request_ = parts_.engine.submit(
      {.tokens = std::move(tokens),
       .max_new_tokens = is_limited ? std::min(options_.max_new_tokens, room) : room,
       .sampling = options_.sampling,
       .stream = stream_of(next.answers(), tries),
       .stop_tokens = options_.stop_tokens,
       .stop_strings = options_.stop_strings});
  prompt_tokens_ = count;
  tries_.resize(answer);
  tries_.push_back(tries);
  before_ = std::exchange(conversation_, std::move(next));
}

Finished Dialogue::run(const Listener& listener, bool& stop_wanted) {
  const StepStatistics& statistics = parts_.engine.statistics();
  const PassWork before = statistics.work;
  bool is_cancelled = false;
  while (true) {
    const bool has_enough = listener.has_enough && listener.has_enough();
    if (!is_cancelled && (stop_wanted || has_enough)) {
      parts_.engine.cancel(request_);
      is_cancelled = true;
    }
    const StepResult& result = parts_.engine.step();
    stop_wanted = stop_wanted || result.stop_wanted;
    if (result.tokens.empty() && listener.on_prompt) {
      const std::int64_t shared = statistics.work.shared_positions - before.shared_positions;
      listener.on_prompt(statistics.work.prompt_rows - before.prompt_rows, prompt_tokens_ - shared);
    }
    for (const NewToken& token : result.tokens) {
      if (listener.on_text && !token.text.empty()) listener.on_text(token.text);
    }
    if (!result.finished.empty()) return result.finished.front();
  }
}

Turn Dialogue::answer(const Listener& listener) {
  const StepStatistics before = parts_.engine.statistics();
  bool stop_wanted = false;
  const Finished finished = run(listener, stop_wanted);
  require_undamaged(finished, "the conversation");
  if (listener.on_text && !finished.rest.empty()) listener.on_text(finished.rest);
  if (finished.reason == StopReason::cancelled && finished.text.empty()) {
    conversation_ = std::move(before_);
  } else {
    conversation_.answer(finished.text);
  }
  const StepStatistics& after = parts_.engine.statistics();
  return {.text = finished.text,
          .reason = finished.reason,
          .prompt_tokens = prompt_tokens_,
          .computed_tokens = after.work.prompt_rows - before.work.prompt_rows,
          .answer_tokens = std::ssize(finished.tokens),
          .prompt_seconds = after.prompt_seconds - before.prompt_seconds,
          .answer_seconds = after.generate_seconds - before.generate_seconds,
          .stop_wanted = stop_wanted};
}

}  // namespace moesaic
