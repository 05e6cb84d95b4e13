#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace moesaic {

/// What went wrong, as far as a caller can act on it. The program's exit codes follow from it
/// (launch/main.cpp).
enum class ErrorKind {
  usage,     ///< the request itself is wrong: a flag, a prompt, a rank count
  file,      ///< a file or directory is missing, truncated, or not what it should be
  resource,  ///< memory, disk or a device is too small or absent
  peer,      ///< another rank failed, timed out or disagrees
  internal,  ///< a broken promise of our own
};

/// The one exception of the project. The message says what was expected, what was found, and where
/// (file, tensor, byte, rank).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

/// Throws Error unless `condition` holds.
template <typename... Args>
void require(bool condition, ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(kind, text, std::forward<Args>(args)...);
  }
}

/// `value` as another integer type; throws ErrorKind::internal if it does not fit.
template <typename To, typename From>
[[nodiscard]] constexpr To narrow(From value) {
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || (result < To{}) != (value < From{})) [[unlikely]] {
    fail(ErrorKind::internal, "value {} does not fit its narrower type", value);
  }
  return result;
}

}  // namespace moesaic
