#pragma once

#include <optional>
#include <string_view>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// The method of a text, number or container, bound to it; nullopt if there is none of that name.
/// One that would change its object gives what is undefined.
[[nodiscard]] std::optional<Value> method_of(const Value& object, std::string_view name);

/// Methods by name; nullptr for others.
[[nodiscard]] Function text_method(std::string_view name);
[[nodiscard]] Function text_question(std::string_view name);  ///< isdigit and the like
[[nodiscard]] Function container_method(const Value& object, std::string_view name);

}  // namespace moesaic::jinja
