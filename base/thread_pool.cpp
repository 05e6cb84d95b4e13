#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/waited_word.h"

namespace moesaic {
namespace {

/// Of State::inside: no worker may begin.
constexpr std::uint32_t kClosed = std::uint32_t{1} << 31;

}  // namespace

struct ThreadPool::State {
  // One call of parallel_for: written by worker 0 while nobody is inside and nobody may begin.
  std::int64_t num_tasks = 0;
  void* function = nullptr;
  Call call = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;

  // Of worker 0 alone.
  std::function<void()> between_tasks;
  std::chrono::microseconds interval{};
  std::chrono::steady_clock::time_point next_look{};
  CoreYield core;

  alignas(64) WaitedWord round{0};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<std::int64_t> next_task{0};
  /// Workers that have begun, but worker 0, and kClosed. Worker 0 waits for these alone: one that
  /// others keep from its core is not missed while there is another to do its tasks.
  alignas(64) WaitedWord inside{kClosed};
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), state_(new State) {
  require(num_threads >= 1, ErrorKind::usage, "the number of threads must be at least 1, not {}",
          num_threads);
  try {  // those that have started would never end
    for (int worker = 1; worker < num_threads; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorKind::resource, "the system refuses thread {} of {}: {}", threads_.size() + 2,
         num_threads, error.what());
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->round.add(1);
  state_->round.wake_all();
}

void ThreadPool::work(int worker) {
  CoreYield core;
  std::uint32_t seen = 0;
  while (true) {
    seen = state_->round.wait(seen, core);
    if (state_->stop.load(std::memory_order_relaxed)) return;
    if ((state_->inside.add(1) & kClosed) == 0) take_tasks(worker);
    if (state_->inside.subtract(1) == (kClosed | 1)) state_->inside.wake_all();
  }
}

void ThreadPool::take_tasks(int worker) {
  State& state = *state_;
  while (true) {
    const std::int64_t task = state.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= state.num_tasks) return;
    try {
      state.call(state.function, task, worker);
      if (worker == 0) look_between_tasks();
    } catch (...) {
      const std::lock_guard lock(state.error_mutex);
      if (!state.error) state.error = std::current_exception();
      state.next_task.store(state.num_tasks, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::set_between_tasks(std::function<void()> hook, std::chrono::microseconds interval) {
  state_->between_tasks = std::move(hook);
  state_->interval = interval;
  state_->next_look = {};
}

void ThreadPool::look_between_tasks() {
  State& state = *state_;
  if (!state.between_tasks) return;
  if (std::chrono::steady_clock::now() < state.next_look) return;
  state.between_tasks();
  state.next_look = std::chrono::steady_clock::now() + state.interval;
}

void ThreadPool::run(std::int64_t num_tasks, void* function, Call call) {
  if (num_threads_ == 1 || num_tasks <= 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) {
      call(function, task, 0);
      look_between_tasks();
    }
    return;
  }
  State& state = *state_;
  state.num_tasks = num_tasks;
  state.function = function;
  state.call = call;
  state.next_task.store(0, std::memory_order_relaxed);
  state.inside.clear_bits(kClosed);
  state.round.add(1);
  state.round.wake_all();
  take_tasks(0);
  std::uint32_t inside = state.inside.set_bits(kClosed) | kClosed;
  while (inside != kClosed) inside = state.inside.wait(inside, state.core);
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

}  // namespace moesaic
