#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/roof.h"
#include "launch/job/runtime.h"

namespace moesaic {

/// Measures what all threads of all ranks together reach at most: products from registers, and
/// reads of memory. Keeps the best of all attempts, since others on the machine disturb some of
/// them: a benchmark measures before, between and after what it compares.
class RoofGauge {
 public:
  /// Reads `memory`, as much as no cache holds, piece by piece in turn. All must outlive this.
  RoofGauge(Communicator& world, ThreadPool& pool, std::span<const std::byte> memory);

  /// Each takes some attempts, more of them the first time. Collective.
  void measure_multiply(const MultiplyLoop& loop);
  void measure_reads();

  struct MultiplyRate {
    const MultiplyLoop* loop = nullptr;
    double operations_per_second = 0;
  };
  /// The best so far, of loops in the order in which they were measured first.
  [[nodiscard]] std::span<const MultiplyRate> multiplies() const noexcept { return multiplies_; }
  /// The same of one. Throws Error{internal} if it was not measured.
  [[nodiscard]] double operations_per_second(const MultiplyLoop& loop) const;
  [[nodiscard]] double bytes_per_second() const noexcept { return bytes_; }

 private:
  double attempt_reads(const Prefetch& prefetch, int attempts);

  Communicator* world_;
  ThreadPool* pool_;
  std::span<const std::byte> memory_;
  std::size_t piece_bytes_ = 0;  // of one attempt
  std::size_t next_piece_ = 0;
  std::vector<MultiplyRate> multiplies_;
  double bytes_ = 0;
  std::optional<Prefetch> best_prefetch_;
};

struct Roofs {
  /// Of operations that are shared out over formats as measure_roofs was told.
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

/// Both, with all threads of all ranks' pools at once; `operations` says how many a work has with
/// weights of each format. Reads are of 1 GiB a node, or a quarter of what --memory-limit or the
/// system leaves. Takes some seconds. Collective.
[[nodiscard]] Roofs measure_roofs(const Runtime& runtime, ThreadPool& pool,
                                  const std::map<Format, double>& operations);

/// Seconds that `work` takes from when all ranks start it until all are done. Collective.
[[nodiscard]] double time_together(Communicator& world, const std::function<void()>& work);

}  // namespace moesaic
