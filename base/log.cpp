#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cstdio>

namespace moesaic {
namespace {

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
