#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/rounding.h"

namespace moesaic {

/// A rank's worker threads. The caller of parallel_for is worker 0; size() - 1 threads help it.
/// Idle workers look for work for some microseconds, and then sleep: several ranks may share the
/// cores of one machine. Nobody waits for a worker that has not begun when all tasks are given out.
class ThreadPool {
 public:
  /// Throws Error{usage} unless num_threads >= 1, Error{resource} if the system refuses a thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const noexcept { return num_threads_; }

  /// Calls body(task, worker) for every task in [0, num_tasks), each once, in any order, with
  /// worker in [0, size()). Tasks are handed out one at a time in ascending order, so put the
  /// longest first. Returns when all are done; the first exception of a body is rethrown then. Not
  /// reentrant.
  template <typename Body>
  void parallel_for(std::int64_t num_tasks, Body&& body) {
    using Function = std::remove_reference_t<Body>;
    run(num_tasks, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* function, std::int64_t task, int worker) {
          (*static_cast<Function*>(function))(task, worker);
        });
  }

  /// From now on worker 0, the thread that calls parallel_for, calls `hook` between two tasks, not
  /// more often than every `interval`: for what must go on while a rank computes. What it throws
  /// comes out of parallel_for. Not while a parallel_for runs.
  void set_between_tasks(std::function<void()> hook, std::chrono::microseconds interval);

  /// Calls body(index), or body(index, worker), for every index in [0, count), `per_task`
  /// consecutive ones a task.
  template <typename Body>
  void for_each(std::int64_t count, std::int64_t per_task, Body&& body) {
    parallel_for(divide_up(count, per_task), [&](std::int64_t task, int worker) {
      const std::int64_t end = std::min(count, (task + 1) * per_task);
      for (std::int64_t index = task * per_task; index < end; ++index) {
        if constexpr (std::is_invocable_v<Body&, std::int64_t, int>) {
          body(index, worker);
        } else {
          body(index);
        }
      }
    });
  }

  /// Calls body(first, count) for pieces of [0, count) of `piece` indices and what is left, each a
  /// task.
  template <typename Body>
  void for_each_piece(std::int64_t count, std::int64_t piece, Body&& body) {
    parallel_for(divide_up(count, piece), [&](std::int64_t task, int /*worker*/) {
      body(task * piece, std::min(piece, count - task * piece));
    });
  }

  /// for_each() for rows with which little is done, some of them a task.
  template <typename Body>
  void for_each_row(std::int64_t rows, Body&& body) {
    for_each(rows, 8, body);
  }

 private:
  using Call = void (*)(void* function, std::int64_t task, int worker);
  struct State;
  void run(std::int64_t num_tasks, void* function, Call call);
  void work(int worker);
  void take_tasks(int worker);
  void look_between_tasks();
  void stop() noexcept;

  int num_threads_;
  std::unique_ptr<State> state_;
  std::vector<std::jthread> threads_;
};

}  // namespace moesaic
