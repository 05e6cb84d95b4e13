#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launch/job/runtime.h"

namespace moesaic {

/// Finds out whether others took the cores of this job's ranks during some work: multiply-adds on
/// registers are slower before or after it than they have been at their best, threads that could
/// have run waited for a core (run delay), or the hypervisor gave the cores away (steal time).
/// Ranks that share cores wait for each other: of them the steal time counts alone.
class Disturbance {
 public:
  /// Takes some milliseconds. Collective.
  Disturbance(const Runtime& runtime, bool shares_cores);

  /// Before the work. Collective.
  void begin();
  /// After it: whether any rank was disturbed, the same on all ranks. Collective.
  [[nodiscard]] bool was_disturbed();

 private:
  /// Operations a second of this rank's threads, now.
  [[nodiscard]] double probe() const;

  const Runtime* runtime_;
  bool shares_cores_;
  double best_ = 0;
  double before_ = 0;
  std::int64_t steal_ticks_ = 0;
  std::int64_t all_ticks_ = 0;
  double delay_seconds_ = 0;
  std::chrono::steady_clock::time_point start_{};
};

/// Of a text as /proc/stat has it: ticks of all CPUs since the system started, all of them and
/// those that the hypervisor gave to others; zeros if it says nothing of this.
struct CpuTicks {
  std::int64_t all = 0;
  std::int64_t stolen = 0;
};
[[nodiscard]] CpuTicks parse_cpu_ticks(const std::string& proc_stat);

}  // namespace moesaic
