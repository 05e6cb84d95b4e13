#pragma once

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace moesaic {

/// A file descriptor of any kind, or none (-1), closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

/// Whether a read of it would not wait: something has come, or the end, or an error. Returns after
/// so long at most, or at a signal.
[[nodiscard]] inline bool is_readable(int descriptor, std::chrono::milliseconds most) {
  pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int count = ::poll(&input, 1, static_cast<int>(most.count()));
  return count > 0 || (count < 0 && errno != EINTR);
}

}  // namespace moesaic
