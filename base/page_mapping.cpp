#include "base/page_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace moesaic {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;
constexpr int kMostFailures = 4;

// Of Linux; older headers lack them.
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, 5.14
constexpr int kCollapse = 25;       // MADV_COLLAPSE, 6.1

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

/// Gives back what lies before and behind the part of `length` that begins on a huge page.
std::byte* keep_aligned(std::byte* begin, std::size_t length) {
  const auto value = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t head = round_up(value, kHugePage) - value;
  if (head > 0) munmap(begin, head);
  if (head < kHugePage) munmap(begin + head + length, kHugePage - head);
  return begin + head;
}

}  // namespace

void PageMapping::Unmap::operator()(std::byte* data) const noexcept {
  munmap(data, bytes);
}

PageMapping::PageMapping(std::size_t bytes, std::size_t needed, int file) {
  if (bytes == 0) return;
  const bool is_huge = bytes >= kHugeFrom;
  const std::size_t length = round_up(bytes, kPage);
  const int kind = file == kNoFile ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  // A place for it is found first, since that of a file's first byte decides.
  void* at = mmap(nullptr, is_huge ? length + kHugePage : length, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  auto* const begin =
      is_huge ? keep_aligned(static_cast<std::byte*>(at), length) : static_cast<std::byte*>(at);
  data_ = std::unique_ptr<std::byte, Unmap>(begin, Unmap{length});
  if (mmap(begin, length, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file, 0) == MAP_FAILED) {
    const int error = errno;
    data_.reset();
    errno = error;
  } else if (is_huge) {
    const std::size_t huge = needed / kHugePage * kHugePage;
    madvise(begin, huge, MADV_HUGEPAGE);
    if (huge < length) madvise(begin + huge, length - huge, MADV_NOHUGEPAGE);
  }
}

void take_huge_pages(std::span<std::byte> mapping, PageShare share) noexcept {
  if (reinterpret_cast<std::uintptr_t>(mapping.data()) % kHugePage != 0) return;
  int failures = 0;  // in a row: where memory is in pieces each may take long
  for (std::size_t page = share.first;
       (page + 1) * kHugePage <= mapping.size() && failures < kMostFailures; page += share.step) {
    std::byte* const begin = mapping.data() + page * kHugePage;
    // One small page has to be there to become a huge one.
    const bool is_huge =
        madvise(begin, kPage, kPopulateWrite) == 0 && madvise(begin, kHugePage, kCollapse) == 0;
    failures = is_huge ? 0 : failures + 1;
  }
}

}  // namespace moesaic
