#pragma once

#include <string_view>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// The test of that name (what stands behind `is`), which gives a bool; nullptr if there is none.
[[nodiscard]] Function question_named(std::string_view name);

}  // namespace moesaic::jinja
