#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// The candidate that takes the fewest edits (insert, delete, replace, swap neighbours) to become
/// `word`; empty if none is near enough to be what was meant.
[[nodiscard]] std::string nearest_name(std::string_view word,
                                       std::span<const std::string_view> candidates);
/// "; did you mean --top-k?" with a prefix of "--"; empty if no name is near enough.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string_view> candidates,
                                       std::string_view prefix = "");

}  // namespace moesaic
