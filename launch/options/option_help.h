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

/// Options without values of their own unless somebody gave them, and where values come from then.
struct ElsewhereOptions {
  std::span<const std::string_view> names;
  std::string_view source;
};
/// The resolved options of the command's verb as an .ini file, each with its source; what is
/// decided elsewhere, and what has no value, as a comment.
[[nodiscard]] std::string config_text(const Command& command,
                                      const ElsewhereOptions& elsewhere = {});
/// The same as a JSON object of strings, numbers and booleans.
[[nodiscard]] std::string config_json(const Command& command);

}  // namespace moesaic
