#include "launch/chat/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/small_file.h"
#include "base/text_lines.h"

namespace moesaic {

std::optional<std::string> LineReader::take() {
  const std::size_t end = buffer_.find('\n', searched_);
  if (end != std::string::npos) return take(end);
  searched_ = buffer_.size();
  if (!has_ended_ || buffer_.empty()) return std::nullopt;
  return take(buffer_.size());
}

std::string LineReader::take(std::size_t end) {
  std::string line(without_return(std::string_view(buffer_).substr(0, end)));
  buffer_.erase(0, std::min(end + 1, buffer_.size()));
  searched_ = 0;
  if (number_++ == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return line;
}

void LineReader::read() {
  std::array<char, 65536> bytes{};
  ssize_t count = -1;
  do count = ::read(descriptor_, bytes.data(), bytes.size());
  while (count < 0 && errno == EINTR);
  require(count >= 0, ErrorKind::file, "cannot read the standard input: {}", std::strerror(errno));
  has_ended_ = count == 0;
  buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  // What was there before is of one line.
  require(buffer_.size() <= most_line_bytes_, ErrorKind::file,
          "the standard input line {} has more than {} bytes", number_ + 1, most_line_bytes_);
}

}  // namespace moesaic
