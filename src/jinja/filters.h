#pragma once

#include <string_view>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// The filter of that name; nullptr if there is none.
[[nodiscard]] Function filter_named(std::string_view name);

// Its parts, by what they take.
[[nodiscard]] Function text_filter(std::string_view name);
[[nodiscard]] Function value_filter(std::string_view name);
[[nodiscard]] Function sequence_filter(std::string_view name);
[[nodiscard]] Function choosing_filter(std::string_view name);

/// The part of `value` that a path such as "function.name" or "0" names. At each step `fallback`,
/// if given, stands for what is not there.
[[nodiscard]] Value member_at(const Value& value, const Value& path,
                              const Value* fallback = nullptr);

}  // namespace moesaic::jinja
