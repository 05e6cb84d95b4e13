// Preloaded into a program: refuses memory in pieces as large as the results of a job of a
// product (tests/launch/refused_memory_test.cpp).

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  constexpr std::size_t kLeast = 200000;
  constexpr std::size_t kMost = 400000;
  if ((flags & MAP_ANONYMOUS) != 0 && bytes > kLeast && bytes < kMost) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
