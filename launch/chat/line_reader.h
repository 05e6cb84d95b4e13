#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/text_lines.h"

namespace moesaic {

/// Lines of a file, pipe or terminal (base/text_lines.h) as they come.
class LineReader {
 public:
  explicit LineReader(int descriptor, std::size_t most_line_bytes = kMostLineBytes)
      : descriptor_(descriptor), most_line_bytes_(most_line_bytes) {}

  /// The next line of what was read, without its end; the last one may have none.
  [[nodiscard]] std::optional<std::string> take();
  /// Lines that were taken.
  [[nodiscard]] std::int64_t taken() const noexcept { return number_; }
  /// Reads what is there, and waits if there is nothing; when take() has nothing more. Throws
  /// Error{file} if it cannot, or, with its number, for a line that is too long.
  void read();
  /// Whether nothing more will come.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  [[nodiscard]] std::string take(std::size_t end);

  int descriptor_;
  std::size_t most_line_bytes_;
  std::string buffer_;  // read and not yet taken
  std::size_t searched_ = 0;
  std::int64_t number_ = 0;  // of the line that was taken last
  bool has_ended_ = false;
};

}  // namespace moesaic
