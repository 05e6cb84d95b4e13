#include "kernels/roof.h"

#include <algorithm>
#include <atomic>

namespace moesaic {
namespace {

constexpr std::int64_t kTasksPerThread = 8;
constexpr std::int64_t kReadTaskBytes = std::int64_t{4} << 20;

}  // namespace

double run_multiply_adds(Isa isa, double flops, ThreadPool& pool) {
  const RoofLoops& loops = find_roof_loops(isa);
  const std::int64_t tasks = kTasksPerThread * pool.size();
  const auto rounds = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(flops / static_cast<double>(tasks * loops.flops_per_round)));
  std::atomic<float> sink{};  // keeps the loops from being optimised away
  pool.parallel_for(tasks, [&](std::int64_t, int) { sink = loops.multiply_add(rounds); });
  return static_cast<double>(tasks * rounds * loops.flops_per_round);
}

void run_reads(std::span<const std::byte> data, std::int64_t ahead, ThreadPool& pool) {
  const RoofLoops& loops = find_roof_loops(supported_isas().back());
  const auto bytes = static_cast<std::int64_t>(data.size());
  const std::int64_t tasks = (bytes + kReadTaskBytes - 1) / kReadTaskBytes;
  std::atomic<std::uint64_t> sink{};
  pool.parallel_for(tasks, [&](std::int64_t task, int) {
    const std::int64_t first = task * kReadTaskBytes;
    const std::int64_t count = std::min(kReadTaskBytes, bytes - first);
    sink = loops.read(data.data() + first, count, ahead);
  });
}

}  // namespace moesaic
