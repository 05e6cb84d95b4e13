#include "launch/study/disturbance.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/directory.h"
#include "kernels/roof.h"
#include "launch/bench/bench_timing.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

constexpr int kProbes = 3;
constexpr double kProbeSeconds = 0.002;
constexpr double kLeastShare = 0.8;   // of the best probe
constexpr double kMostStolen = 0.02;  // of all ticks
constexpr double kMostDelay = 0.05;   // of the threads' time

CpuTicks read_cpu_ticks() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  return parse_cpu_ticks(line);
}

/// Seconds that all threads of this process have waited for a core since they started; 0 if the
/// system does not tell.
double run_delay_seconds() {
  double seconds = 0;
  std::error_code error;
  for (const auto& task : entries_of("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");  // ns on a core, ns in wait of one, times
    double running = 0;
    double waiting = 0;
    if (file >> running >> waiting) seconds += 1e-9 * waiting;
  }
  return seconds;
}

}  // namespace

CpuTicks parse_cpu_ticks(const std::string& proc_stat) {
  constexpr int kColumns = 8;  // user nice system idle iowait irq softirq steal
  std::istringstream text(proc_stat);
  std::string name;
  CpuTicks ticks;
  if (!(text >> name) || name != "cpu") return {};
  for (int column = 0; column < kColumns; ++column) {
    std::int64_t value = 0;
    if (!(text >> value)) return {};
    ticks.all += value;
    if (column == kColumns - 1) ticks.stolen = value;
  }
  return ticks;
}

Disturbance::Disturbance(const Runtime& runtime, bool shares_cores)
    : runtime_(&runtime), shares_cores_(shares_cores) {
  for (int i = 0; i < 4 && !shares_cores_; ++i) best_ = std::max(best_, probe());
}

double Disturbance::probe() const {
  const Compute compute = runtime_->compute();
  const MultiplyLoop& loop = find_multiply_loop(compute.isa, Format::bf16);
  const double operations = (best_ > 0 ? best_ : 1e10 * compute.pool->size()) * kProbeSeconds;
  double rate = 0;
  for (int i = 0; i < kProbes; ++i) {  // a short one may meet a moment of somebody else's
    double done = 0;
    const double seconds =
        time_once([&] { done = run_multiply_adds(loop, operations, *compute.pool); });
    rate = std::max(rate, done / seconds);
  }
  return rate;
}

void Disturbance::begin() {
  if (!shares_cores_) before_ = probe();
  const CpuTicks ticks = read_cpu_ticks();
  all_ticks_ = ticks.all;
  steal_ticks_ = ticks.stolen;
  delay_seconds_ = run_delay_seconds();
  start_ = std::chrono::steady_clock::now();
}

bool Disturbance::was_disturbed() {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const double delay = run_delay_seconds() - delay_seconds_;
  const CpuTicks ticks = read_cpu_ticks();
  const auto stolen = static_cast<double>(ticks.stolen - steal_ticks_);
  std::int64_t disturbed = stolen > kMostStolen * static_cast<double>(ticks.all - all_ticks_);
  if (!shares_cores_) {
    const double after = probe();
    best_ = std::max({best_, before_, after});
    if (std::min(before_, after) < kLeastShare * best_) disturbed = 1;
    if (delay > kMostDelay * passed.count() * runtime_->compute().pool->size()) disturbed = 1;
  }
  runtime_->world().max(std::span(&disturbed, 1));
  return disturbed != 0;
}

}  // namespace moesaic
