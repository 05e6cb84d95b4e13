// Preloaded into a program: each advice that it gives the system about mapped memory, as it does
// for all that it is going to read, takes MOESAIC_READ_MS; the one of number MOESAIC_LAST_READ
// never ends, that of number MOESAIC_KILLING_READ kills the program
// (tests/launch/slow_rank_test.cpp).

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>

namespace {

std::atomic<long> reads = 0;

long number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

}  // namespace

extern "C" int madvise(void* address, std::size_t bytes, int advice) noexcept {
  ::usleep(static_cast<unsigned>(1000 * number("MOESAIC_READ_MS")));
  const long read = ++reads;
  if (read == number("MOESAIC_LAST_READ")) ::pause();
  if (read == number("MOESAIC_KILLING_READ")) (void)::raise(SIGKILL);
  return static_cast<int>(::syscall(SYS_madvise, address, bytes, advice));
}
