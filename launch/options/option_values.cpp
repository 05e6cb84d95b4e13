#include "launch/options/option_values.h"

#include <charconv>

#include "base/error.h"

namespace moesaic {

ByteCount parse_bytes(std::string_view text, std::string_view where) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::string_view kUnits = "KMGTP";
  double factor = 1;
  bool known = unit.empty() || unit == "B";
  if (!known) {
    const std::size_t power = kUnits.find(unit[0]);
    known = power != std::string_view::npos &&
            (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "iB");
    for (std::size_t i = 0; known && i <= power; ++i) factor *= 1024;
  }
  require(error == std::errc() && known && value >= 0 && value * factor < 9e18, ErrorKind::usage,
          "{}: \"{}\" is not a number of bytes such as 800M or 12G", where, text);
  return {static_cast<std::int64_t>(value * factor), std::string(text)};
}

}  // namespace moesaic
