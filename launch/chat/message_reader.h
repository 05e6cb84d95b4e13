#pragma once

#include <string>

#include "launch/chat/line_source.h"

namespace moesaic {

/// What a person says at once.
struct Message {
  using Kind = Line::Kind;

  Kind kind = Kind::end;
  std::string text{};
  bool is_quoted = false;  ///< was between """: no command
};

/// Puts messages together from lines: one that ends in \ goes on with the next line, and so does
/// all that stands between """ and """. Empty messages are skipped.
class MessageReader {
 public:
  /// `prompt` asks for a message. `lines` must outlive this.
  MessageReader(LineSource& lines, std::string prompt);

  [[nodiscard]] Message read();

 private:
  [[nodiscard]] Message read_one();
  [[nodiscard]] Message read_quoted(const std::string& first);

  LineSource& lines_;
  std::string prompt_;
  std::string further_prompt_;
};

}  // namespace moesaic
