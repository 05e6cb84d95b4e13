#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/topology.h"
#include "comm/profiled_communicator.h"
#include "launch/bench/roofs.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"
#include "launch/job/verbs.h"
#include "launch/study/disturbance.h"
#include "launch/study/measurement.h"
#include "launch/study/point_job.h"

namespace moesaic {
namespace {

/// CPU time of this process, all threads, user and system.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double sum_over_ranks(Communicator& world, double value) {
  double sum = 0;
  for (const double part : gather_values(world, value)) sum += part;
  return sum;
}

/// Of rank 0's first core; empty if the system does not tell.
std::string governor() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::string name;
  std::getline(file, name);
  return name;
}

Provenance describe_provenance(const Runtime& runtime) {
  Provenance result = this_program();
  result.isa = isa_name(runtime.compute().isa);
  result.cpu = read_topology().cpu_model;
  result.governor = governor();
  for (const RankInfo& rank : runtime.ranks()) {
    result.hosts.emplace_back(rank.host_name());
    result.cpusets.emplace_back(rank.cpus());
  }
  return result;
}

/// Measures one point.
class PointRun {
 public:
  explicit PointRun(Runtime& runtime) : runtime_(runtime), job_(make_point_job(runtime)) {}

  /// Collective; of rank 0 the result counts.
  [[nodiscard]] Measurement measure() {
    Measurement result;
    describe(result);
    run_timed(result);
    take_memory(result);  // before profiles and roofs take some
    run_profiled(result);
    if (!runtime_.options().no_roofs) result.roof_share = roof_share(result.seconds);
    return result;
  }

 private:
  void describe(Measurement& result) const {
    const CoreUse use = core_use(runtime_.ranks());
    result.ranks = runtime_.world().size();
    result.nodes = runtime_.num_nodes();
    result.threads = use.threads;
    result.cores = use.cores;
    result.is_oversubscribed = use.is_oversubscribed;
    const PointFacts facts = job_->facts();
    result.experts = facts.experts;
    result.experts_per_token = facts.experts_per_token;
    result.layers = facts.layers;
    result.hidden = facts.hidden;
    result.expert_format = facts.expert_format;
    result.replicas = runtime_.options().expert_replicas;
    result.sequences = runtime_.options().sequences;
    result.tokens = job_->tokens();
    result.routing = facts.routing;
    result.transport = runtime_.world().transport();
    result.load_seconds = facts.load_seconds;
    result.provenance = describe_provenance(runtime_);
  }

  /// Repetitions in which nobody disturbed, after one that does not count; when as many were
  /// disturbed as are wanted, the rest is taken as it is.
  void run_timed(Measurement& result) {
    PointWork& work = job_->work();
    Disturbance disturbance(runtime_, result.is_oversubscribed);
    work.run();
    std::vector<PhaseTimes> phases;
    double cpu = 0;
    const std::int64_t wanted = runtime_.options().repetitions;
    while (std::ssize(result.samples) < wanted) {
      runtime_.leave_if_stop_wanted();
      work.reset_counts();
      disturbance.begin();
      const double cpu_before = cpu_seconds();
      const double seconds = time_together(runtime_.world(), [&] { work.run(); });
      const double cpu_used = cpu_seconds() - cpu_before;
      if (disturbance.was_disturbed() && result.disturbed < wanted) {
        ++result.disturbed;
        continue;
      }
      result.samples.push_back(seconds);
      phases.push_back(work.counts().times);
      cpu += cpu_used;
    }
    const auto count = static_cast<double>(wanted);
    const MeanInterval interval = mean_interval(result.samples);
    result.seconds = interval.mean;
    result.ci95 = interval.half_width;
    result.cpu_seconds = sum_over_ranks(runtime_.world(), cpu) / count;
    take_phases(phases, result);
    take_load(work.counts(), result);
  }

  /// A few runs with a barrier before each exchange, which tells waiting from moving.
  void run_profiled(Measurement& result) const {
    constexpr std::int64_t kMost = 3;
    ProfiledCommunicator experts(runtime_.grid().experts());
    const std::unique_ptr<PointWork> work = job_->work_over(experts);
    work->run();
    work->reset_counts();
    const double late_before = experts.late_seconds();
    const std::int64_t runs = std::min(kMost, runtime_.options().repetitions);
    for (std::int64_t i = 0; i < runs; ++i) {
      runtime_.leave_if_stop_wanted();
      work->run();
    }
    PointCounts counts = work->counts();
    const double late = experts.late_seconds() - late_before;
    const auto all = static_cast<double>(runs * runtime_.world().size());
    result.late_seconds = sum_over_ranks(runtime_.world(), late) / all;
    result.transfer_seconds =
        std::max(0.0, sum_over_ranks(runtime_.world(), counts.times[Phase::wait] - late) / all);
    std::array<std::int64_t, 3> sums = {counts.moved.bytes_near, counts.moved.bytes_far,
                                        counts.moved.messages};
    runtime_.world().sum(std::span<std::int64_t>(sums));
    result.intra_bytes = sums[0] / runs;
    result.inter_bytes = sums[1] / runs;
    result.messages = sums[2] / runs;
  }

  void take_phases(const std::vector<PhaseTimes>& repetitions, Measurement& result) const {
    PhaseTimes mean;
    for (const PhaseTimes& times : repetitions) {
      for (std::size_t i = 0; i < kNumPhases; ++i) {
        mean.seconds[i] += times.seconds[i] / static_cast<double>(repetitions.size());
      }
    }
    const std::vector<PhaseTimes> all = gather_values(runtime_.world(), mean);
    for (std::size_t i = 0; i < kNumPhases; ++i) {
      PhaseMeasurement& phase = result.phases[i];
      for (const PhaseTimes& rank : all) {
        phase.mean += rank.seconds[i] / static_cast<double>(all.size());
        phase.most = std::max(phase.most, rank.seconds[i]);
      }
    }
    const PhaseMeasurement& wait = result.phases[static_cast<std::size_t>(Phase::wait)];
    result.exposed_share = wait.mean / result.seconds;
  }

  void take_load(const PointCounts& counts, Measurement& result) const {
    double most = 0;
    double sum = 0;
    const std::vector<ExpertLoad> loads = gather_values(runtime_.world(), counts.load);
    for (const ExpertLoad& load : loads) {
      most = std::max(most, static_cast<double>(load.rows));
      sum += static_cast<double>(load.rows);
    }
    if (sum > 0) result.rows_max_over_mean = most * static_cast<double>(loads.size()) / sum;
    result.expert_rows = counts.rows;
    for (std::vector<std::int64_t>& layer : result.expert_rows) {
      runtime_.world().sum(std::span(layer));
    }
  }

  void take_memory(Measurement& result) const {
    const std::vector<std::int64_t> peaks =
        gather_values(runtime_.world(), node_peak_bytes(runtime_.grid().node()));
    result.node_peak_bytes = std::ranges::max(peaks);
    const std::vector<std::int64_t> planned =
        gather_values(runtime_.world(), job_->facts().planned_node_bytes);
    result.node_planned_bytes = std::ranges::max(planned);
  }

  /// Nothing if nothing is computed.
  [[nodiscard]] std::optional<double> roof_share(double seconds) const {
    const std::map<Format, double> operations = job_->multiplied();
    if (operations.empty()) return std::nullopt;
    const Roofs roofs = measure_roofs(runtime_, *runtime_.compute().pool, operations);
    return job_->least_seconds(roofs) / seconds;
  }

  Runtime& runtime_;
  std::unique_ptr<PointJob> job_;
};

}  // namespace

void run_study_point(Runtime& runtime) {
  PointRun point(runtime);
  runtime.run_or_end_early("nothing is measured", [&] {
    const Measurement result = point.measure();
    if (runtime.is_first()) fmt::print("{}\n", measurement_json(result));
  });
}

}  // namespace moesaic
