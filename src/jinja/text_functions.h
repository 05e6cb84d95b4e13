#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/characters.h"
#include "src/jinja/value.h"

namespace moesaic::jinja {

/// str.split() and str.rsplit(); white space separates if `separator` is not given. `most` cuts, or
/// all if it is negative.
[[nodiscard]] std::vector<Value> split_text(std::string_view text,
                                            std::optional<std::string_view> separator,
                                            std::int64_t most, bool from_right);

/// str.splitlines().
[[nodiscard]] std::vector<Value> lines_of(std::string_view text, bool keep_ends);

/// str.replace(); `most` times, or everywhere if it is negative.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view old, std::string_view by,
                                   std::int64_t most);

/// str.ljust() (fills on the right), str.rjust() and str.center(), up to `width` characters.
[[nodiscard]] std::string padded_text(std::string_view text, Side side, std::int64_t width,
                                      std::string_view fill);

}  // namespace moesaic::jinja
