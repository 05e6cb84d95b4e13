#include "comm/exchange_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

/// Since 1970: to compare ranks of hosts whose clocks agree.
std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ExchangeTrace::ExchangeTrace(const std::string& path)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      exceptions_(std::uncaught_exceptions()) {
  require(file_ >= 0, ErrorKind::resource, "{}: cannot be written: {}", path, std::strerror(errno));
}

ExchangeTrace::~ExchangeTrace() {
  if (std::uncaught_exceptions() > exceptions_) {
    put_in_order();
  } else {
    ::unlink(path_.c_str());
  }
  ::close(file_);
}

void ExchangeTrace::add(const ExchangeEvent& event) noexcept {
  Line line;
  line.fill(' ');
  line.back() = '\n';
  const RowLabel& label = event.label;
  const auto text = fmt::format_to_n(
      line.data(), line.size() - 1,
      R"({{"event": {}, "us": {}, "what": "{}", "exchange": {}, "ranks": {}, "step": {}, )"
      R"("layer": {}, "phase": "{}", "rows": {}, "bytes": {}, "missing": "{}"}})",
      events_, now_us(), event.what, event.exchange, event.ranks, label.step, label.layer,
      label.phase.data(), event.rows, event.bytes, event.missing.substr(0, kMissingBytes));
  if (text.size >= line.size()) return;  // no numbers are as long
  const auto written = ::pwrite(file_, line.data(), line.size(), events_ % kEvents * kLineBytes);
  if (written == std::ssize(line)) {
    ++events_;
  } else if (written > 0 && events_ < kEvents) {  // the beginning of a line is none
    std::ignore = ::ftruncate(file_, events_ * kLineBytes);
  }
}

void ExchangeTrace::put_in_order() noexcept try {
  if (events_ <= kEvents) return;
  std::vector<Line> lines(kEvents);
  const auto bytes = static_cast<ssize_t>(lines.size() * sizeof(Line));
  if (::pread(file_, lines.data(), static_cast<std::size_t>(bytes), 0) != bytes) return;
  std::rotate(lines.begin(), lines.begin() + events_ % kEvents, lines.end());
  if (::pwrite(file_, lines.data(), static_cast<std::size_t>(bytes), 0) != bytes) return;
} catch (...) {  // without memory they stay as they are
}

}  // namespace moesaic
