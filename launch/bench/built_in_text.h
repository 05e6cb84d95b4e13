#pragma once

#include <string_view>

namespace moesaic {

/// What a model reads where the user gives no text: some KB of prose about several subjects, code,
/// numbers and a table, for which tokens choose experts as they do for texts.
[[nodiscard]] std::string_view built_in_text() noexcept;

}  // namespace moesaic
