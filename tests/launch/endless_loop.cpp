// Preloaded into a program: from SIGUSR2 on it computes for ever
// (tests/launch/endless_loop_test.cpp).

#include <csignal>

namespace {

void loop(int /*signal*/) {
  volatile bool forever = true;
  while (forever) {
  }
}

/// When the library is loaded.
const bool kInstalled = std::signal(SIGUSR2, loop) != SIG_ERR;

}  // namespace
