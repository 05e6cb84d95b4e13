#pragma once

#include <string>

namespace moesaic {

/// The manual page moesaic(1), in the macros of man(7), from the tables of verbs and options.
[[nodiscard]] std::string manual_page();
/// A script for bash that completes verbs, options and the values that an option chooses from.
[[nodiscard]] std::string bash_completion();

}  // namespace moesaic
