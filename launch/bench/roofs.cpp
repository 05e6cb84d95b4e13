#include "launch/bench/roofs.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/buffer.h"
#include "base/error.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"

namespace moesaic {
namespace {

// Attempts are short: a long one is sure to lose its core to someone else for a while, if there is
// someone.
constexpr double kAttemptSeconds = 0.005;
constexpr std::size_t kThreadBytes = std::size_t{64} << 20;
constexpr int kFirstAttempts = 32;
constexpr int kLaterAttempts = 12;
constexpr std::int64_t kNodeBytes = std::int64_t{1} << 30;
constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;

constexpr Prefetch kPrefetches[] = {{0, true},     {1024, true},  {2048, true}, {4096, true},
                                    {1024, false}, {2048, false}, {4096, false}};

/// `work` returns how much it did; the best sum over all ranks a second.
double best_rate(Communicator& world, int attempts, const std::function<double()>& work) {
  double best = 0;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    double amount = 0;
    const double seconds = time_together(world, [&] { amount = work(); });
    double total = 0;
    for (const double part : gather_values(world, amount)) total += part;
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace

RoofGauge::RoofGauge(Communicator& world, ThreadPool& pool, std::span<const std::byte> memory)
    : world_(&world),
      pool_(&pool),
      memory_(memory),
      piece_bytes_(std::min(memory.size(), kThreadBytes * static_cast<std::size_t>(pool.size()))) {}

void RoofGauge::measure_multiply(const MultiplyLoop& loop) {
  auto known = std::ranges::find(multiplies_, &loop, &MultiplyRate::loop);
  if (known == multiplies_.end()) known = multiplies_.insert(known, {.loop = &loop});
  double& best = known->operations_per_second;
  const bool is_first = best == 0;
  if (is_first) {  // finds how much work an attempt needs, and warms up
    best = best_rate(*world_, 2, [&] { return run_multiply_adds(loop, 1e8, *pool_); });
  }
  const double operations = best * kAttemptSeconds / world_->size();
  const double rate = best_rate(*world_, is_first ? kFirstAttempts : kLaterAttempts,
                                [&] { return run_multiply_adds(loop, operations, *pool_); });
  best = std::max(best, rate);
}

double RoofGauge::operations_per_second(const MultiplyLoop& loop) const {
  const auto known = std::ranges::find(multiplies_, &loop, &MultiplyRate::loop);
  require(known != multiplies_.end(), ErrorKind::internal, "{} was not measured", loop.instruction);
  return known->operations_per_second;
}

double RoofGauge::attempt_reads(const Prefetch& prefetch, int attempts) {
  const double rate = best_rate(*world_, attempts, [&] {
    const std::size_t pieces = memory_.size() / piece_bytes_;
    run_reads(memory_.subspan(next_piece_++ % pieces * piece_bytes_, piece_bytes_), prefetch,
              *pool_);
    return static_cast<double>(piece_bytes_);
  });
  bytes_ = std::max(bytes_, rate);
  return rate;
}

void RoofGauge::measure_reads() {
  if (best_prefetch_) {
    attempt_reads(*best_prefetch_, kLaterAttempts);
    return;
  }
  double best = 0;
  for (const Prefetch& prefetch : kPrefetches) {
    const double rate = attempt_reads(prefetch, kLaterAttempts);
    if (rate > best) best_prefetch_ = prefetch;
    best = std::max(best, rate);
  }
  attempt_reads(*best_prefetch_, kFirstAttempts);
}

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

Roofs measure_roofs(const Runtime& runtime, ThreadPool& pool,
                    const std::map<Format, double>& operations) {
  const std::int64_t share = kNodeBytes / runtime.grid().node().size();
  const std::int64_t spare = spare_memory(runtime) / 4;
  const std::int64_t pages = std::max<std::int64_t>(1, std::min(share, spare) / kPageBytes);
  const Buffer<std::byte> memory(pages * kPageBytes);
  pool.parallel_for(pages, [&](std::int64_t page, int) {
    std::memset(memory.data() + page * kPageBytes, 1, static_cast<std::size_t>(kPageBytes));
  });
  RoofGauge gauge(runtime.world(), pool, memory.span());
  double all = 0;
  double seconds = 0;
  for (const auto& [format, count] : operations) {
    const MultiplyLoop& loop = find_multiply_loop(runtime.compute().gemm(format).isa, format);
    gauge.measure_multiply(loop);
    all += count;
    seconds += count / gauge.operations_per_second(loop);
  }
  gauge.measure_reads();
  return {.flops_per_second = all / seconds, .bytes_per_second = gauge.bytes_per_second()};
}

}  // namespace moesaic
