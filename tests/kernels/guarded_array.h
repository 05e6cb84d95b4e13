#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>
#include <stdexcept>

namespace moesaic {

/// An array that ends where a page without access begins, so that a read past its end is a crash.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t count)
      : count_(count),
        mapped_bytes_((count * sizeof(T) + kPageBytes - 1) / kPageBytes * kPageBytes + kPageBytes),
        mapping_(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0)) {
    if (mapping_ == MAP_FAILED || mprotect(guard_page(), kPageBytes, PROT_NONE) != 0) {
      throw std::runtime_error("no guarded memory");
    }
  }
  ~GuardedArray() { munmap(mapping_, mapped_bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  [[nodiscard]] std::span<T> span() const {
    return {reinterpret_cast<T*>(guard_page()) - count_, count_};
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  [[nodiscard]] std::byte* guard_page() const {
    return static_cast<std::byte*>(mapping_) + mapped_bytes_ - kPageBytes;
  }

  std::size_t count_;
  std::size_t mapped_bytes_;
  void* mapping_;
};

}  // namespace moesaic
