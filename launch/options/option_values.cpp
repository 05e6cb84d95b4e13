#include "launch/options/option_values.h"

#include <array>
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
  constexpr double kLeastPlain = 1024;  // fewer bytes are of no use, but a number of GiB
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
  require(!unit.empty() || value == 0 || value >= kLeastPlain, ErrorKind::usage,
          "{}: \"{}\" are bytes; \"{}G\" are GiB", where, text, text);
  return {static_cast<std::int64_t>(value * factor), std::string(text)};
}

TimeSpan parse_time_span(std::string_view text, std::string_view where) {
  constexpr std::string_view kUnits = "smhd";
  constexpr std::array kSeconds = {1.0, 60.0, 3600.0, 86400.0};
  constexpr double kMostSeconds = 1e9;
  double seconds = 0;
  bool known = !text.empty();
  for (std::string_view rest = text; known && !rest.empty();) {
    double value = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    const std::size_t unit = rest.empty() ? 0 : kUnits.find(rest[0]);
    known = error == std::errc() && unit < kUnits.size() && value >= 0;
    if (known) seconds += value * kSeconds[unit];
    if (!rest.empty()) rest.remove_prefix(1);
  }
  require(known && seconds <= kMostSeconds, ErrorKind::usage,
          "{}: \"{}\" is not a length of time such as 90s, 50m or 1h30m", where, text);
  return {static_cast<std::int64_t>(seconds * 1000), std::string(text)};
}

}  // namespace moesaic
