#pragma once

#include <string>

#include "launch/options/options.h"

namespace moesaic {

/// The verbs, one a line.
[[nodiscard]] std::string overall_help();
/// The options of one verb in groups, with defaults.
[[nodiscard]] std::string verb_help(Verb verb);
/// The verbs of two words or more that begin with `group`, such as "bench"; empty if there is none.
[[nodiscard]] std::string group_help(std::string_view group);

/// The resolved options of the command's verb as an .ini file, each with its source.
[[nodiscard]] std::string config_text(const Command& command);
/// The same as a JSON object of strings, numbers and booleans.
[[nodiscard]] std::string config_json(const Command& command);

}  // namespace moesaic
