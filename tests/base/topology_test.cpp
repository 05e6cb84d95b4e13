// Which cpus a process takes over from the one that has started it.

#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace moesaic {
namespace {

using Cpus = std::vector<int>;

/// Of the calling thread; empty on systems that are larger than cpu_set_t.
Cpus own_cpus() {
  cpu_set_t set;
  Cpus cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Whether `check` holds in a child of this process.
bool holds_in_child(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class CpusOfParent : public testing::Test {
 protected:
  void SetUp() override {
    if (all_.size() < 2) GTEST_SKIP() << "one cpu has no parts";
  }
  void TearDown() override { EXPECT_TRUE(all_.empty() || bind_this_thread(all_)); }
  const Cpus all_ = own_cpus();
};

TEST_F(CpusOfParent, AllThreadsOfAProcessBoundToAPartHaveThem) {
  EXPECT_TRUE(holds_in_child([&] {
    if (!bind_this_thread(Cpus{all_.back()})) return false;
    Cpus before;
    Cpus after;
    std::latch is_there(1);
    std::latch has_taken(1);
    std::thread other([&] {
      before = own_cpus();
      is_there.count_down();
      has_taken.wait();
      after = own_cpus();
    });
    is_there.wait();
    const bool has = take_cpus_of_parent();
    has_taken.count_down();
    other.join();
    return has && own_cpus() == all_ && before == Cpus{all_.back()} && after == all_;
  }));
}

TEST_F(CpusOfParent, OneThatHasAllOrOthersKeepsItsOwn) {
  EXPECT_TRUE(holds_in_child([&] { return !take_cpus_of_parent() && own_cpus() == all_; }));
  ASSERT_TRUE(bind_this_thread(Cpus{all_.front()}));
  EXPECT_TRUE(holds_in_child([&] {
    const Cpus others = {all_.back()};
    return bind_this_thread(others) && !take_cpus_of_parent() && own_cpus() == others;
  }));
}

}  // namespace
}  // namespace moesaic
