#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "launch/bench/roofs.h"
#include "launch/job/session.h"

namespace moesaic {

/// What a rank did since its counts were reset.
struct PointCounts {
  PhaseTimes times{};
  ExpertLoad load{};
  ExpertRows rows{};
  RowCounters moved{};  // for the experts
};

/// What a point does, again and again, on one group of ranks that share experts.
class PointWork {
 public:
  PointWork() = default;
  virtual ~PointWork() = default;
  PointWork(const PointWork&) = delete;
  PointWork& operator=(const PointWork&) = delete;

  /// One run, from the first step to the last. Collective.
  virtual void run() = 0;
  [[nodiscard]] virtual PointCounts counts() const = 0;
  virtual void reset_counts() = 0;
};

/// What it is done with.
struct PointFacts {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::string expert_format{};  // empty: no experts compute
  std::string routing{};        // what decides which experts tokens choose
  double load_seconds = 0;
  std::int64_t planned_node_bytes = 0;
};

/// The job of a point. Calls are collective but for those that tell.
class PointJob {
 public:
  PointJob() = default;
  virtual ~PointJob() = default;
  PointJob(const PointJob&) = delete;
  PointJob& operator=(const PointJob&) = delete;

  [[nodiscard]] virtual PointFacts facts() const = 0;
  /// Tokens of one run, over all ranks.
  [[nodiscard]] virtual std::int64_t tokens() const = 0;
  [[nodiscard]] virtual PointWork& work() = 0;
  /// The same work, with the same weights, for other exchanges between the same ranks. `experts`
  /// must outlive the result.
  [[nodiscard]] virtual std::unique_ptr<PointWork> work_over(Communicator& experts) = 0;
  /// Operations by the formats of their weights, or what is proportional to them; none: the job
  /// computes nothing.
  [[nodiscard]] virtual std::map<Format, double> multiplied() const = 0;
  /// What a run takes of all ranks together at the least, by what limits it more.
  [[nodiscard]] virtual double least_seconds(const Roofs& roofs) const = 0;
};

/// Makes what --job names, and loads its model or makes the layer of its shape. `runtime` must
/// outlive the result. Collective.
[[nodiscard]] std::unique_ptr<PointJob> make_point_job(const Runtime& runtime);

}  // namespace moesaic
