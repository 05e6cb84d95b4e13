#pragma once

#include <cstdint>
#include <memory>

#include "launch/bench/roofs.h"
#include "launch/job/session.h"

namespace moesaic {

/// What a point does with a model, again and again. Calls are collective but for those that tell.
class PointJob {
 public:
  PointJob() = default;
  virtual ~PointJob() = default;
  PointJob(const PointJob&) = delete;
  PointJob& operator=(const PointJob&) = delete;

  [[nodiscard]] virtual Engine& engine() noexcept = 0;
  /// Tokens of one run, over all ranks.
  [[nodiscard]] virtual std::int64_t tokens() const = 0;
  /// One run, from the first step to the last, on engine().transformer().
  virtual void run() = 0;
  /// The same work on another transformer with the same weights.
  virtual void run_on(Transformer& transformer) = 0;
  /// What a run takes of all ranks together at the least, by what limits it more.
  [[nodiscard]] virtual double least_seconds(const Roofs& roofs) const = 0;
};

/// Makes what --job names, and loads the model. All must outlive the result. Collective.
[[nodiscard]] std::unique_ptr<PointJob> make_point_job(const Runtime& runtime,
                                                       const OpenModel& model);

}  // namespace moesaic
