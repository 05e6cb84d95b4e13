#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launch/options/options.h"

namespace moesaic {

/// The verbs, one a line.
[[nodiscard]] std::string overall_help();
/// The options of one verb in groups, with defaults.
[[nodiscard]] std::string verb_help(Verb verb);
/// The verbs of two words or more that begin with `group`, such as "bench"; empty if there is none.
[[nodiscard]] std::string group_help(std::string_view group);

/// The resolved options of the command's verb as an .ini file, each with its source. Those that are
/// `open` stand there as comments unless somebody gave them.
[[nodiscard]] std::string config_text(const Command& command,
                                      std::span<const std::string_view> open = {});
/// The same as a JSON object of strings, numbers and booleans.
[[nodiscard]] std::string config_json(const Command& command);

}  // namespace moesaic
