#include "kernels/roof.h"

#include <algorithm>
#include <atomic>

#include "kernels/cpu/read_loops.h"

namespace moesaic {
namespace {

constexpr std::int64_t kTasksPerThread = 8;
constexpr std::int64_t kReadTaskBytes = std::int64_t{4} << 20;

}  // namespace

double run_multiply_adds(const MultiplyLoop& loop, double operations, ThreadPool& pool) {
  const std::int64_t tasks = kTasksPerThread * pool.size();
  const std::int64_t all_tasks_round = tasks * loop.operations_per_round;
  const auto rounds = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(operations / static_cast<double>(all_tasks_round)));
  std::atomic<float> sink{};  // keeps the loops from being optimised away
  pool.parallel_for(tasks, [&](std::int64_t, int) { sink = loop.run(rounds); });
  return static_cast<double>(rounds) * static_cast<double>(all_tasks_round);
}

void run_reads(std::span<const std::byte> data, const Prefetch& prefetch, ThreadPool& pool) {
  const ReadLoop read = find_read_loop(supported_isas().back());
  const auto bytes = static_cast<std::int64_t>(data.size());
  const std::int64_t tasks = divide_up(bytes, kReadTaskBytes);
  std::atomic<std::uint64_t> sink{};
  pool.parallel_for(tasks, [&](std::int64_t task, int) {
    const std::int64_t first = task * kReadTaskBytes;
    const std::int64_t count = std::min(kReadTaskBytes, bytes - first);
    sink = read(data.data() + first, count, prefetch);
  });
}

}  // namespace moesaic
