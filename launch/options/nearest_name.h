#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// The candidate that takes the fewest edits (insert, delete, replace, swap neighbours) to become
/// `word`; empty if none is near enough to be what was meant.
[[nodiscard]] std::string nearest_name(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace moesaic
