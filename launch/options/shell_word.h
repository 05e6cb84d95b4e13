#pragma once

#include <string>

namespace moesaic {

/// `text` as one word of a shell's command line: in quotes where it needs them. For commands that a
/// user is told to type.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace moesaic
