#pragma once

#include <string>

#include "src/chat/conversation.h"

namespace moesaic {

/// "~/a" in the home directory; all other paths as they are.
[[nodiscard]] std::string expand_home(const std::string& path);

/// A conversation that save_conversation() wrote, or any line of `moesaic tokenize --chat`. Throws
/// Error{file}.
[[nodiscard]] Conversation read_conversation(const std::string& path);

/// Writes it as a line of JSON; the file appears whole. Throws Error{usage} if something is there
/// and `may_replace` is false, Error{resource} if it cannot be written.
void save_conversation(const Conversation& conversation, const std::string& path, bool may_replace);

}  // namespace moesaic
