#include "launch/roofs.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/roof.h"
#include "launch/gather.h"
#include "src/base/buffer.h"
#include "src/base/memory.h"

namespace moesaic {
namespace {

constexpr int kPasses = 5;
constexpr std::int64_t kNodeBytes = std::int64_t{1} << 30;
constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;

/// `work` returns how much it did; the best sum over all ranks a second.
double best_rate(Communicator& world, int passes, const std::function<double()>& work) {
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    double amount = 0;
    const double seconds = time_together(world, [&] { amount = work(); });
    double total = 0;
    for (const double part : gather_values(world, amount)) total += part;
    best = std::max(best, total / seconds);
  }
  return best;
}

double measure_flops(const Runtime& runtime, Isa isa) {
  ThreadPool& pool = *runtime.compute().pool;
  double flops = 1e8;
  const double rate =  // finds how much work a pass needs, and warms up
      best_rate(runtime.world(), 2, [&] { return run_multiply_adds(isa, flops, pool); });
  flops = rate * 0.05 / runtime.world().size();
  return best_rate(runtime.world(), kPasses, [&] { return run_multiply_adds(isa, flops, pool); });
}

double measure_reads(const Runtime& runtime) {
  ThreadPool& pool = *runtime.compute().pool;
  const std::int64_t share = kNodeBytes / runtime.grid().node().size();
  const std::int64_t spare = memory_limit().available_bytes / (4 * runtime.grid().node().size());
  const std::int64_t pages = std::max<std::int64_t>(1, std::min(share, spare) / kPageBytes);
  // Beyond the end of what is read there is room for what is prefetched.
  const Buffer<std::byte> data((pages + 1) * kPageBytes);
  pool.parallel_for(pages + 1, [&](std::int64_t page, int) {
    std::memset(data.data() + page * kPageBytes, 1, static_cast<std::size_t>(kPageBytes));
  });
  const auto read = data.span().first(static_cast<std::size_t>(pages * kPageBytes));
  double best = 0;
  for (const std::int64_t ahead : {0, 1024, 2048, 4096}) {
    best = std::max(best, best_rate(runtime.world(), kPasses, [&] {
                      run_reads(read, ahead, pool);
                      return static_cast<double>(read.size());
                    }));
  }
  return best;
}

}  // namespace

double time_together(Communicator& world, const std::function<void()>& work) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  work();
  world.barrier();
  const double own =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<double> all = gather_values(world, own);
  return *std::max_element(all.begin(), all.end());
}

Roofs measure_roofs(const Runtime& runtime, Format format) {
  return {.flops_per_second = measure_flops(runtime, runtime.compute().gemm(format).isa),
          .bytes_per_second = measure_reads(runtime)};
}

}  // namespace moesaic
