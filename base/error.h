#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace moesaic {

/// What went wrong, as far as a caller can act on it. The program's exit codes follow from it
/// (exit_code in launch/job/agreement.h).
enum class ErrorKind {
  usage,     ///< the request itself is wrong: a flag, a prompt, a rank count
  file,      ///< a file or directory is missing, truncated, or not what it should be
  resource,  ///< memory, disk or a device is too small or absent
  peer,      ///< another rank failed, timed out or disagrees
  internal,  ///< a broken promise of our own
};

/// `text` with its control characters as C writes them: "\0", "\n", "\x1b". Ends of lines stay
/// where two spaces follow, as in messages of several lines.
[[nodiscard]] std::string without_controls(std::string_view text);

/// The one exception of the project. The message says what was expected, what was found, and where
/// (file, tensor, byte, rank); it may quote anything (without_controls).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message)
      : std::runtime_error(without_controls(message)), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// The exception that is being handled, as an Error, whatever it is: what the system refuses is of
/// kind resource, what nobody expects of kind internal.
[[nodiscard]] Error current_error();

/// A format string, and the line of our sources that it stands in.
template <typename... Args>
struct LocatedText {
  fmt::format_string<Args...> text;
  const char* file;
  int line;

  template <typename Text>
  consteval LocatedText(const Text& literal, const char* where = __builtin_FILE(),
                        int at = __builtin_LINE())
      : text(literal), file(where), line(at) {}
};

/// Throws Error with a formatted message. One of kind internal begins with "file:line: ": it is for
/// whoever mends it.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, LocatedText<std::type_identity_t<Args>...> message,
                       Args&&... args) {
  std::string text = fmt::format(message.text, std::forward<Args>(args)...);
  if (kind == ErrorKind::internal)
    text = fmt::format("{}:{}: {}", message.file, message.line, text);
  throw Error(kind, text);
}

/// Throws Error unless `condition` holds.
template <typename... Args>
void require(bool condition, ErrorKind kind, LocatedText<std::type_identity_t<Args>...> message,
             Args&&... args) {
  if (!condition) [[unlikely]] {
    fail<Args...>(kind, message, std::forward<Args>(args)...);
  }
}

/// `value` as another integer type; throws ErrorKind::internal if it does not fit.
template <typename To, typename From>
[[nodiscard]] constexpr To narrow(From value, const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || (result < To{}) != (value < From{})) [[unlikely]] {
    throw Error(ErrorKind::internal,
                fmt::format("{}:{}: value {} does not fit its narrower type", file, line, value));
  }
  return result;
}

}  // namespace moesaic
