#pragma once

#include <chrono>
#include <string>

#include "base/log.h"

namespace moesaic {

/// How a process that has failed tells it, and ends.
struct Failure {
  int code = 1;
  std::string message;
  std::chrono::milliseconds silence{};  // before it is told: another rank may know more
  std::chrono::milliseconds grace{};    // after that: the launcher knows, and has a code for it
  LogLevel level = LogLevel::error;
};

/// That of the exception which is being handled, whatever it is.
[[nodiscard]] Failure describe_current_exception();

}  // namespace moesaic
