#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "launch/bench/roofs.h"

namespace moesaic {

/// Threads that something runs on, and what they reach at most.
struct Team {
  Team(Communicator& world, int threads, std::span<const std::byte> memory)
      : pool(threads), gauge(world, pool, memory) {}

  void measure_roofs(const MultiplyLoop& loop) {
    gauge.measure_multiply(loop);
    gauge.measure_reads();
  }
  /// "roofs of 1 thread: reads 15.2 GB/s, VDPBF16PS zmm 231 GOP/s", of loops that were measured.
  [[nodiscard]] std::string roof_line(std::span<const MultiplyLoop* const> loops) const;

  ThreadPool pool;
  RoofGauge gauge;
};

/// One for each number of --threads: 1, and one thread a core, if it names none. They read `memory`
/// for their roofs.
[[nodiscard]] std::vector<std::unique_ptr<Team>> make_teams(const Runtime& runtime,
                                                            std::span<const std::byte> memory);

}  // namespace moesaic
