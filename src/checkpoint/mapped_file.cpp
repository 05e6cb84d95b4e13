#include "src/checkpoint/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/open_file.h"
#include "src/checkpoint/read_faults.h"

namespace moesaic {
namespace {

/// On a page that is read Linux maps those around it too that are in its cache: all of an aligned
/// window of so many addresses, and (since 6.18) all of the block of so much of the file that the
/// cache has in one piece; within the mapping.
constexpr std::uintptr_t kWindow = std::uintptr_t{64} << 10;
constexpr std::uintptr_t kMappedBlock = std::uintptr_t{2} << 20;

/// Gives advice on the pages with addresses in [begin, end).
void advise(std::uintptr_t begin, std::uintptr_t end, int advice) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin & ~(page - 1);
  if (first >= end) return;
  (void)::madvise(reinterpret_cast<void*>(first), end - first, advice);
}

std::uintptr_t begin_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}
std::uintptr_t end_of(std::span<const std::byte> bytes) {
  return begin_of(bytes) + bytes.size();
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const OpenFile file(path);
  const auto size = static_cast<std::size_t>(file.size_bytes());
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  require(data != MAP_FAILED, ErrorKind::resource, "{}: cannot be mapped into memory: {}", path,
          std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
  watched_ = &watch(bytes_);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  unwatch(*watched_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      watched_(std::exchange(other.watched_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(watched_, other.watched_);
  return *this;
}

void MappedFile::require_read() const {
  const std::int64_t failed_at = watched_ == nullptr ? -1 : watched_->failed_at();
  if (failed_at < 0) return;
  struct stat status = {};
  const bool is_shorter = ::stat(path_.c_str(), &status) == 0 &&
                          static_cast<std::size_t>(status.st_size) < bytes_.size();
  require(!is_shorter, ErrorKind::file,
          "{}: cut short by another program while it was read: {} of {} bytes are left", path_,
          status.st_size, bytes_.size());
  fail(ErrorKind::file,
       "{}: the page at byte {} could not be read: its disk or server failed, or the file was "
       "replaced meanwhile",
       path_, failed_at);
}

void MappedFile::release_pages() const noexcept {
  release(bytes_);
}

void prefetch(std::span<const std::byte> mapped) noexcept {
  advise(begin_of(mapped), end_of(mapped), MADV_WILLNEED);
}

void release(std::span<const std::byte> mapped) noexcept {
  const std::span<const std::byte> file = watched_around(mapped);
  if (file.empty()) return;
  const std::uintptr_t at = begin_of(file);
  const std::uintptr_t begin = (begin_of(mapped) - at) / kMappedBlock * kMappedBlock;
  const std::uintptr_t end = (end_of(mapped) - at + kMappedBlock - 1) / kMappedBlock * kMappedBlock;
  advise(at + begin - std::min(begin, kWindow), std::min(at + end + kWindow, end_of(file)),
         MADV_DONTNEED);
}

void add_to_checksum(Checksum& sum, std::span<const std::byte> mapped,
                     const std::function<void(std::int64_t bytes)>& added) {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  while (!mapped.empty()) {
    const auto piece = mapped.first(std::min(kPiece, mapped.size()));
    sum.add(piece);
    release(piece);
    mapped = mapped.subspan(piece.size());
    added(std::ssize(piece));
  }
}

std::shared_ptr<const std::byte> reserve_unread(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* data = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(data != MAP_FAILED, ErrorKind::resource, "addresses of {} bytes cannot be had: {}", size,
          std::strerror(errno));
  return {static_cast<const std::byte*>(data),
          [size](const std::byte* at) { ::munmap(const_cast<std::byte*>(at), size); }};
}

}  // namespace moesaic
