#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string>
#include <string_view>

namespace moesaic {

/// "1 rank", "3 ranks": a noun whose plural ends in s.
[[nodiscard]] std::string counted(std::integral auto count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace moesaic
