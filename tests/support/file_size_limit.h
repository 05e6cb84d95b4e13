#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

namespace moesaic::test {

/// While it lives no file of this process grows beyond so many bytes: whatever tries that gets an
/// error.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace moesaic::test
