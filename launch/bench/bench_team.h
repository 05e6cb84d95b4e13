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
  ThreadPool pool;
  RoofGauge gauge;
};

/// One for each number of --threads: 1, and one thread a core, if it names none. They read `memory`
/// for their roofs.
[[nodiscard]] std::vector<std::unique_ptr<Team>> make_teams(const Runtime& runtime,
                                                            std::span<const std::byte> memory);

/// "roofs of 1 thread: reads 15.2 GB/s, VDPBF16PS zmm 231 GOP/s", a line for each team that has
/// measured some: one that was interrupted before its turn has not.
[[nodiscard]] std::vector<std::string> roof_lines(std::span<const std::unique_ptr<Team>> teams);
void log_roofs(const Runtime& runtime, std::span<const std::unique_ptr<Team>> teams);

}  // namespace moesaic
