#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// A line of a table of filters, tests or methods.
using NamedFunction = std::pair<std::string_view, Function>;

/// The function of that name; nullptr if the table has none.
template <std::size_t N>
[[nodiscard]] Function look_up(const NamedFunction (&table)[N], std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(table), std::end(table),
                   [&](const NamedFunction& entry) { return entry.first == name; });
  return found == std::end(table) ? nullptr : found->second;
}

}  // namespace moesaic::jinja
