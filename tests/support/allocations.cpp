#include "tests/support/allocations.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__has_feature)  // clang
#define MOESAIC_IS_WATCHED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOESAIC_IS_WATCHED true
#else
#define MOESAIC_IS_WATCHED false
#endif

namespace {

thread_local std::int64_t num_of_thread = 0;
constinit std::atomic<std::int64_t> num_of_all = 0;
constinit std::atomic<std::int64_t> num_live = 0;

void count() noexcept {
  ++num_of_thread;
  num_of_all.fetch_add(1, std::memory_order_relaxed);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  count();
  void* memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  num_live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

/// Not inlined, so that g++ does not take free() for a wrong way to give back what `new` gave.
[[gnu::noinline]] void release(void* memory) noexcept {
  if (memory != nullptr) num_live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

#if !MOESAIC_IS_WATCHED  // else the sanitizer has to see what is mapped
extern "C" void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  count();
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
#endif

namespace moesaic::test {

bool counts_allocations() {
  return !MOESAIC_IS_WATCHED;
}

std::int64_t allocations_of_thread() noexcept {
  return num_of_thread;
}

std::int64_t allocations_of_all() noexcept {
  return num_of_all.load(std::memory_order_relaxed);
}

std::int64_t live_allocations() noexcept {
  return num_live.load(std::memory_order_relaxed);
}

}  // namespace moesaic::test
