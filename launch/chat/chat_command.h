#pragma once

#include <optional>
#include <string>

namespace moesaic {

/// What a person asks of the program, not of the model.
struct ChatCommand {
  enum class Kind { help, reset, undo, retry, system, save, load, stats, exit };

  Kind kind = Kind::help;
  std::string argument{};  ///< what follows the name
};

/// The command that a message is: a slash and a word of letters, and perhaps an argument. nullopt
/// for all other messages. Throws Error{usage} for an unknown one, or an argument too many.
[[nodiscard]] std::optional<ChatCommand> parse_chat_command(const std::string& message);

/// All commands and how messages are written, some lines.
[[nodiscard]] std::string chat_help();

}  // namespace moesaic
