#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

#if defined(__has_feature)
#define MOESAIC_LATE_SIGNALS __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define MOESAIC_LATE_SIGNALS 1
#else
#define MOESAIC_LATE_SIGNALS 0
#endif

namespace moesaic {
namespace {

constexpr bool kLateSignals = MOESAIC_LATE_SIGNALS != 0;

TEST(ThreadPool, every_task_runs_once) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks));
      pool.parallel_for(tasks, [&](std::int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++runs[static_cast<std::size_t>(task)];
      });
      EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(tasks), 1));
    }
  }
}

TEST(ThreadPool, every_index_is_visited_once) {
  ThreadPool pool(3);
  for (const int count : {0, 1, 7, 8, 9, 100}) {
    std::vector<int> visits(static_cast<std::size_t>(count));
    pool.for_each(count, 8, [&](std::int64_t index) { ++visits[static_cast<std::size_t>(index)]; });
    EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

TEST(ThreadPool, each_worker_gets_its_tasks_in_ascending_order) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<std::vector<std::int64_t>> tasks(static_cast<std::size_t>(threads));
    pool.parallel_for(100, [&](std::int64_t task, int worker) {
      tasks[static_cast<std::size_t>(worker)].push_back(task);
    });
    for (const auto& of_worker : tasks) EXPECT_TRUE(std::ranges::is_sorted(of_worker));
  }
}

TEST(ThreadPool, many_short_rounds) {
  ThreadPool pool(4);
  std::atomic<std::int64_t> sum = 0;
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(3, [&](std::int64_t task, int) { sum += task; });
  }
  EXPECT_EQ(sum, 6000);
}

// A worker that is kept from its core, by a signal.
std::atomic<bool> is_kept{false};
std::atomic<bool> is_released{false};
void keep_this_thread(int) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  is_kept = true;
  while (!is_released && std::chrono::steady_clock::now() < deadline) {
  }
  is_kept = false;
}

TEST(ThreadPool, does_not_wait_for_workers_that_have_not_begun) {
  if (kLateSignals) GTEST_SKIP() << "signals come late under ThreadSanitizer";
  ThreadPool pool(3);
  std::vector<pthread_t> threads(3);
  std::latch arrived(3);
  pool.parallel_for(3, [&](std::int64_t, int worker) {
    threads[static_cast<std::size_t>(worker)] = pthread_self();
    arrived.arrive_and_wait();
  });
  struct sigaction keep {};
  keep.sa_handler = keep_this_thread;
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR2, &keep, &before), 0);
  ASSERT_EQ(pthread_kill(threads[2], SIGUSR2), 0);
  while (!is_kept) std::this_thread::yield();
  std::atomic<int> done = 0;
  for (int round = 0; round < 100; ++round)
    pool.parallel_for(10, [&](std::int64_t, int) { ++done; });
  EXPECT_TRUE(is_kept);
  EXPECT_EQ(done, 1000);
  is_released = true;
  while (is_kept) std::this_thread::yield();
  EXPECT_EQ(sigaction(SIGUSR2, &before, nullptr), 0);
  pool.parallel_for(100, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 1100);
}

TEST(ThreadPool, exceptions_reach_the_caller_and_the_pool_lives_on) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(50,
                                 [](std::int64_t task, int) {
                                   if (task == 20) throw std::runtime_error("task 20");
                                 }),
               std::runtime_error);
  std::atomic<int> done = 0;
  pool.parallel_for(100, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 100);
}

TEST(ThreadPool, worker_0_looks_around_between_tasks) {
  using std::chrono::microseconds;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto caller = std::this_thread::get_id();
    int looks = 0;
    const auto look = [&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++looks;
    };
    std::atomic<int> tasks_of_caller = 0;
    const auto count = [&](std::int64_t, int worker) { tasks_of_caller += worker == 0 ? 1 : 0; };
    pool.set_between_tasks(look, microseconds(0));
    pool.parallel_for(50, count);
    pool.parallel_for(1, count);
    EXPECT_EQ(looks, tasks_of_caller);
    looks = 0;
    pool.set_between_tasks(look, std::chrono::hours(1));
    for (int round = 0; round < 100; ++round) pool.parallel_for(1, count);
    EXPECT_EQ(looks, 1);
    pool.set_between_tasks([] { throw std::runtime_error("a peer has gone"); }, microseconds(0));
    EXPECT_THROW(pool.parallel_for(1, count), std::runtime_error);
  }
}

TEST(ThreadPool, refuses_no_threads) {
  EXPECT_THROW(ThreadPool(0), Error);
}

}  // namespace
}  // namespace moesaic
