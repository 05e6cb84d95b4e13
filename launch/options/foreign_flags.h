#pragma once

#include <string_view>

namespace moesaic {

/// What to do instead of `flag`, with its dashes, which is one of llama.cpp, vLLM or transformers;
/// empty if it is none. Fits after "unknown option --x; ".
[[nodiscard]] std::string_view foreign_flag_hint(std::string_view flag) noexcept;

/// The same of an option that other verbs have, by its name.
[[nodiscard]] std::string_view other_verbs_hint(std::string_view name) noexcept;

}  // namespace moesaic
