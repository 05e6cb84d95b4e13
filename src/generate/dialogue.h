#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/chat/conversation.h"
#include "src/generate/step_engine.h"

namespace moesaic {

/// What a dialogue needs; all of it must outlive it.
struct DialogueParts {
  StepEngine& engine;  // with the same tokenizer, and nobody else's requests
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
};

struct DialogueOptions {
  static constexpr std::int64_t kUntilFull = -1;

  std::int64_t max_new_tokens = kUntilFull;  ///< of an answer; kUntilFull: what the context leaves
  std::int64_t context_tokens = 0;           ///< of the whole conversation
  SamplingOptions sampling{};
  std::vector<std::int64_t> stop_tokens{};
  std::vector<std::string> stop_strings{};
};

/// Whoever listens to an answer.
struct Listener {
  /// Tokens of the prompt that have been computed, of those that need be; after each step.
  std::function<void(std::int64_t done, std::int64_t total)> on_prompt{};
  std::function<void(const std::string& text)> on_text{};  ///< pieces of it, as they come
  std::function<bool()> has_enough{};  ///< asked before each step; true ends the answer
};

/// An answer, and what it took.
struct Turn {
  std::string text;
  StopReason reason = StopReason::length;
  std::int64_t prompt_tokens = 0;    // the conversation up to the answer
  std::int64_t computed_tokens = 0;  // of them: what was not in the cache from earlier turns
  std::int64_t answer_tokens = 0;
  double prompt_seconds = 0;
  double answer_seconds = 0;
  bool stop_wanted = false;  // a rank was asked to stop, which has ended the answer (StepOptions)

  /// Adds up what it took.
  Turn& operator+=(const Turn& other);
};

/// A conversation with a model. Of every turn the text of the whole conversation is made anew, and
/// computed from where it differs from the one before: so an answer is what it would be without
/// earlier turns, and a turn costs its own tokens, or also those of earlier ones that the template
/// now writes in another way. On rank 0; the other ranks follow the engine meanwhile.
class Dialogue {
 public:
  Dialogue(const DialogueParts& parts, DialogueOptions options);

  /// What is said so far; may be changed between turns.
  [[nodiscard]] Conversation& conversation() noexcept { return conversation_; }
  /// Another conversation in its place.
  void replace(Conversation conversation);
  [[nodiscard]] std::int64_t context_tokens() const noexcept { return options_.context_tokens; }

  /// A user's turn: answer() is next. Throws Error{usage} if it does not fit, and Error{file} for
  /// what the template refuses; nothing has happened then.
  void ask(const std::string& text);
  /// The last question once more, without what followed it: answer() is next, and draws other
  /// random numbers than before. Throws as ask(), and Error{usage} if nobody has asked.
  void ask_again();
  /// The answer; what there is of it if the listener has had enough. If that is nothing, the
  /// conversation is as it was before the question.
  Turn answer(const Listener& listener);

 private:
  void prepare(Conversation next, bool is_again);
  /// Takes steps until the request has ended; sets `stop_wanted` if a rank is asked to stop.
  [[nodiscard]] Finished run(const Listener& listener, bool& stop_wanted);

  DialogueParts parts_;
  DialogueOptions options_;
  Conversation conversation_;
  std::vector<std::uint64_t> tries_;  // of each answer, before the present one
  // While a question waits for answer():
  RequestId request_ = 0;
  std::int64_t prompt_tokens_ = 0;
  Conversation before_;
};

}  // namespace moesaic
