#pragma once

#include <string>
#include <string_view>

namespace moesaic {

/// Where a conversation is seen: answers on the standard output, all else on the standard error
/// output, so that a pipe gets answers alone.
class ChatScreen {
 public:
  explicit ChatScreen(bool colours) : colours_(colours) {}

  /// A piece of an answer, at once.
  void answer(std::string_view text);
  /// The answer is over; the next thing stands on a line of its own. Throws Error{resource} if the
  /// standard output cannot be written.
  void end_answer();
  /// Lines about the conversation.
  void note(std::string_view text) const;
  void error(std::string_view text) const;
  /// What asks for a message. Ends in a character that is seen: libedit drops colours behind it.
  [[nodiscard]] std::string prompt() const;

 private:
  [[nodiscard]] std::string painted(std::string_view code, std::string_view text) const;

  bool colours_;
  bool in_line_ = false;  // an answer has begun a line
};

/// Whether colours are seen: both ends are a terminal that knows them, and NO_COLOR is not set
/// (no-color.org).
[[nodiscard]] bool terminal_has_colours();

}  // namespace moesaic
