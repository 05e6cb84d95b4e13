#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/chat.h"

namespace moesaic {

/// What conversations have that do not say it themselves.
struct ConversationDefaults {
  jinja::Dict variables;  // chat_template_kwargs
  std::optional<std::string> system;
};

/// A conversation that goes on, message by message: what a system prompt, a user and an assistant
/// said, and whatever else a file had.
class Conversation {
 public:
  Conversation() = default;
  /// Goes on from what a file had.
  explicit Conversation(Chat chat);

  /// Whether the role of the first message is system.
  [[nodiscard]] bool has_system() const;
  /// What that says, as JSON where it is no text; empty without one.
  [[nodiscard]] std::string system() const;
  /// The first message is this one, of role system; without text there is none.
  void set_system(const std::string& text);
  /// Takes what it does not say itself.
  void add_defaults(const ConversationDefaults& defaults);

  void ask(const std::string& text) { add("user", text); }
  void answer(const std::string& text) { add("assistant", text); }
  /// Takes back what was said since the last message of a user; false if no user said anything.
  bool retract_answer();
  /// The same with that message.
  bool undo();
  /// Leaves the system prompt alone.
  void clear();

  /// Messages, the system prompt among them.
  [[nodiscard]] std::size_t size() const noexcept { return messages_.size(); }
  /// Messages of role assistant.
  [[nodiscard]] std::int64_t answers() const;
  /// As a template takes it, for the next answer.
  [[nodiscard]] Chat chat() const;
  /// As `moesaic tokenize --chat` and `generate --chat` read it, one line.
  [[nodiscard]] std::string json() const;

 private:
  void add(std::string_view role, const std::string& text);
  /// One past the last message of a user, 0 if there is none.
  [[nodiscard]] std::size_t after_last_question() const;

  Chat chat_;  // all but the messages
  std::vector<jinja::Value> messages_;
};

}  // namespace moesaic
