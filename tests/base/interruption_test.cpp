#include "base/interruption.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace {

int looks_for_files = 0;

}  // namespace

extern "C" int access(const char* path, int mode) noexcept {
  ++looks_for_files;
  return static_cast<int>(::syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

namespace moesaic {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGUSR1};
constexpr std::chrono::hours kLong(1);
constexpr std::chrono::milliseconds kAtOnce(0);

struct sigaction action_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action;
}

TEST(SignalWatch, TheFirstSignalIsToldAndDoesNotEndTheProcess) {
  {
    SignalWatch watch(kSignals, kLong);
    EXPECT_FALSE(watch.caught());
    raise(SIGUSR1);
    EXPECT_EQ(watch.caught(), SIGUSR1);
    EXPECT_FALSE(watch.has_heard(SIGTERM));
    raise(SIGTERM);  // a launcher passes on what the batch system has sent too
    raise(SIGUSR1);
    EXPECT_EQ(watch.caught(), SIGUSR1);
    EXPECT_TRUE(watch.has_heard(SIGTERM));
    watch.forget();
    EXPECT_FALSE(watch.caught());
    EXPECT_FALSE(watch.has_heard(SIGTERM));
    raise(SIGTERM);
    EXPECT_EQ(watch.caught(), SIGTERM);
  }
  for (const int signal : kSignals) EXPECT_EQ(action_of(signal).sa_handler, SIG_DFL);
}

TEST(SignalWatch, ASecondSignalEndsTheProcess) {
  const auto twice = [](int first, int second) {
    const SignalWatch watch(kSignals, kAtOnce);
    raise(first);
    if (watch.caught() != first) _exit(1);
    raise(second);
    _exit(2);
  };
  EXPECT_EXIT(twice(SIGTERM, SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(twice(SIGTERM, SIGUSR1), testing::KilledBySignal(SIGUSR1), "");
}

TEST(SignalWatch, AfterForgettingASignalIsTheFirstAgain) {
  SignalWatch watch(kSignals, kAtOnce);
  for (int i = 0; i < 3; ++i) {
    raise(SIGTERM);
    EXPECT_EQ(watch.caught(), SIGTERM);
    watch.forget();
  }
}

TEST(SignalWatch, WhatIsIgnoredStaysIgnored) {
  signal(SIGUSR1, SIG_IGN);
  {
    const SignalWatch watch(kSignals, kAtOnce);
    raise(SIGUSR1);
    raise(SIGUSR1);
    EXPECT_FALSE(watch.caught());
  }
  EXPECT_EQ(action_of(SIGUSR1).sa_handler, SIG_IGN);
  signal(SIGUSR1, SIG_DFL);
}

TEST(SignalWatch, WhatIsIgnoredWhenItEndsStaysIgnored) {
  {
    const SignalWatch watch(kSignals, kAtOnce);
    signal(SIGTERM, SIG_IGN);
  }
  EXPECT_EQ(action_of(SIGTERM).sa_handler, SIG_IGN);
  EXPECT_EQ(action_of(SIGUSR1).sa_handler, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

TEST(SignalWatch, TheNewestWatchHears) {
  const SignalWatch outer(kSignals, kAtOnce);
  {
    const SignalWatch inner(kSignals, kAtOnce);
    raise(SIGTERM);
    EXPECT_EQ(inner.caught(), SIGTERM);
    EXPECT_FALSE(outer.caught());
  }
  raise(SIGUSR1);
  EXPECT_EQ(outer.caught(), SIGUSR1);
}

TEST(Interruption, ASignalAsksToStop) {
  signal(SIGINT, SIG_DFL);  // shells have it ignored in what they start in the background
  Interruption interruption({});
  EXPECT_FALSE(interruption.wanted());
  interruption.leave_if_wanted("while nothing happened");
  raise(SIGINT);
  EXPECT_TRUE(interruption.wanted());
  EXPECT_EQ(interruption.reason(), "SIGINT");
  EXPECT_THROW(interruption.leave_if_wanted("while reading"), Interrupted);
}

TEST(Interruption, TimeAsksToStop) {
  Interruption none({.signals = {}, .max_time = kLong, .stop_file = ""});
  EXPECT_FALSE(none.wanted());
  Interruption over({.signals = {}, .max_time = kAtOnce, .stop_file = ""});
  EXPECT_TRUE(over.wanted());
  EXPECT_EQ(over.reason(), "the time is over");
}

TEST(Interruption, TheFileIsLookedForOnceASecond) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("out.stop");
  Interruption interruption({.signals = {}, .max_time = {}, .stop_file = file});
  const auto start = std::chrono::steady_clock::now();
  looks_for_files = 0;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(interruption.wanted());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GE(looks_for_files, 1);
  EXPECT_LE(looks_for_files, 1 + seconds.count());
}

TEST(Interruption, AFileAsksToStopAndIsTakenAwayByWhoObeys) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("out.stop");
  Interruption interruption({.signals = {SIGTERM}, .max_time = {}, .stop_file = file});
  EXPECT_FALSE(interruption.wanted());
  test::write_text(file, "");
  while (!interruption.wanted()) {  // it is looked for once a second
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(interruption.reason(), file + " is there");
  interruption.remove_stop_file();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(interruption.wanted());

  test::write_text(file, "");
  Interruption by_signal({.signals = {SIGTERM}, .max_time = {}, .stop_file = file});
  raise(SIGTERM);
  EXPECT_TRUE(by_signal.wanted());
  by_signal.remove_stop_file();
  EXPECT_TRUE(std::filesystem::exists(file)) << "it has not asked";
}

}  // namespace
}  // namespace moesaic
