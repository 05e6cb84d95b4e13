#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"error", "warning", "info", "debug"};

std::string_view tag(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error: ";
    case LogLevel::warning:
      return "warning: ";
    default:
      return "";
  }
}

/// One write call a line, so that lines of several ranks do not mix.
void write_stderr(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

LogLevel log_level_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  fail(ErrorKind::usage, "log level \"{}\" is not one of error, warning, info, debug", name);
}

Log::Log(LogLevel level, int rank, int num_ranks) : level_(level), rank_(rank) {
  if (num_ranks > 1) prefix_ = fmt::format("[rank {}/{} {}] ", rank, num_ranks, host_name());
}

void Log::write_line(LogLevel level, std::string_view text) const {
  write_stderr(fmt::format("{}{}{}\n", prefix_, tag(level), text));
}

void Log::once_line(LogLevel level, std::string_view text) const {
  write_stderr(fmt::format("{}{}\n", tag(level), text));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

}  // namespace moesaic
