// Preloaded into a program: when it first gives the system advice about what it has mapped of
// MOESAIC_CUT_FILE, that file is cut to MOESAIC_CUT_BYTES, as by a program that writes it anew
// (tests/launch/cut_file_test.cpp). With MOESAIC_CUT_MAPPED as soon as it has mapped it.

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

/// A mapping of the file; it may be gone.
struct Mapping {
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<std::size_t> size = 0;
};
std::array<Mapping, 16> mappings;
std::atomic<std::size_t> mapped = 0;

bool is_of_file(const void* address) {
  for (const Mapping& mapping : mappings) {
    if (reinterpret_cast<std::uintptr_t>(address) - mapping.begin < mapping.size) return true;
  }
  return false;
}

void cut() {
  const char* left = std::getenv("MOESAIC_CUT_BYTES");
  (void)!::truncate(std::getenv("MOESAIC_CUT_FILE"), left == nullptr ? 0 : std::atol(left));
}

bool is_wanted(int file) {
  const char* path = std::getenv("MOESAIC_CUT_FILE");
  struct stat wanted = {};
  struct stat found = {};
  return path != nullptr && ::stat(path, &wanted) == 0 && ::fstat(file, &found) == 0 &&
         wanted.st_ino == found.st_ino && wanted.st_dev == found.st_dev;
}

}  // namespace

extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  auto* const data =
      reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
  if ((flags & MAP_ANONYMOUS) == 0 && data != MAP_FAILED && is_wanted(file)) {
    Mapping& mapping = mappings[mapped++ % mappings.size()];
    mapping.begin = reinterpret_cast<std::uintptr_t>(data);
    mapping.size = bytes;
    if (std::getenv("MOESAIC_CUT_MAPPED") != nullptr) cut();
  }
  return data;
}

extern "C" int madvise(void* address, std::size_t bytes, int advice) noexcept {
  if (is_of_file(address)) cut();
  return static_cast<int>(::syscall(SYS_madvise, address, bytes, advice));
}
