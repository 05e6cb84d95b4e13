#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace moesaic {

/// Zero-filled memory of whole pages: this process's own, or a file's, which processes share. From
/// 4 MiB on it is aligned to huge pages (2 MiB), and these are asked for, but for the end that does
/// not fill one: so memory is taken for what is used.
class PageMapping {
 public:
  PageMapping() = default;
  /// Nothing, with errno, when the system refuses. Of `bytes` the first `needed` get huge pages.
  [[nodiscard]] static PageMapping own(std::size_t bytes, std::size_t needed) {
    return {bytes, needed, kNoFile};
  }
  [[nodiscard]] static PageMapping of_file(std::size_t bytes, int file) {
    return {bytes, bytes, file};
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  static constexpr int kNoFile = -1;
  PageMapping(std::size_t bytes, std::size_t needed, int file);

  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Unmap> data_;
};

/// Who takes which huge pages: of those of a mapping number `first`, `first + step`, ...
struct PageShare {
  std::size_t first = 0;
  std::size_t step = 1;
};
/// Takes memory for the huge pages of a mapping of a file now, on the NUMA node of the caller.
/// Systems seldom give files huge pages when they are written (shmem_enabled), but since Linux 6.1
/// they do so when asked for each; where they do not, nothing happens. Contents stay, also those
/// that others write meanwhile.
void take_huge_pages(std::span<std::byte> mapping, PageShare share = {}) noexcept;

}  // namespace moesaic
