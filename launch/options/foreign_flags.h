#pragma once

#include <string>
#include <string_view>

namespace moesaic {

/// What to do instead of `flag`, with its dashes, which is one of llama.cpp, vLLM or transformers;
/// empty if it is none. Fits after "unknown option --x; ".
[[nodiscard]] std::string_view foreign_flag_hint(std::string_view flag) noexcept;

/// Of which verbs an option is that this one has not, by its name: "; it is one of sft"; empty if
/// it is of none. Of some what to do instead.
[[nodiscard]] std::string other_verbs_hint(std::string_view name);

}  // namespace moesaic
