#include "base/waited_word.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace moesaic {
namespace {

TEST(WaitedWord, wakes_those_that_have_slept_long) {
  WaitedWord word(7);
  std::uint32_t seen[2] = {};
  const auto wait = [&](std::uint32_t& to) {
    CoreYield core;
    to = word.wait(7, core);
  };
  std::thread first(wait, std::ref(seen[0]));
  std::thread second(wait, std::ref(seen[1]));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(word.add(2), 7U);
  word.wake_all();
  first.join();
  second.join();
  EXPECT_EQ(seen[0], 9U);
  EXPECT_EQ(seen[1], 9U);
}

/// Two threads in turn, each of which lets the other wait for any time between none and some that
/// it sleeps through: no change is missed.
TEST(WaitedWord, misses_no_change) {
  constexpr std::uint32_t kTurns = 3000;
  WaitedWord word(0);
  const auto take_turns = [&](std::uint32_t own) {
    CoreYield core;
    for (std::uint32_t turn = own; turn < kTurns; turn += 2) {
      if (turn > 0) {
        for (std::uint32_t at = turn - 1; at != turn;) at = word.wait(at, core);
      }
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::microseconds(turn * 37 % 200);
      while (std::chrono::steady_clock::now() < until) {
      }
      word.add(1);
      word.wake_all();
    }
  };
  std::thread other(take_turns, 1);
  take_turns(0);
  other.join();
  CoreYield core;
  EXPECT_EQ(word.wait(0, core), kTurns);
}

}  // namespace
}  // namespace moesaic
