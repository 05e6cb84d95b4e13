#pragma once

#include "launch/plan/job_time.h"
#include "launch/plan/planned_nodes.h"
#include "launch/shapes/shape_point.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// One layer of --shape on the ranks of a command line, before it is started. No file is read.
class ShapePlan {
 public:
  /// Throws Error{usage} for a shape that is none, and for ranks that cannot share its experts.
  ShapePlan(const Options& options, const RuntimeBytes& runtime);

  [[nodiscard]] const LayerShape& shape() const noexcept { return point_.shape; }
  [[nodiscard]] const CostRanks& ranks() const noexcept { return ranks_; }
  /// Of passes over so many tokens of each rank.
  [[nodiscard]] JobMemory memory(std::int64_t batch_tokens) const;
  /// Nodes with as many ranks each that suffice; 0: there are none.
  [[nodiscard]] int fewest_nodes(std::int64_t limit) const;
  [[nodiscard]] const ExpertPopularity& popularity() const noexcept { return popularity_; }
  [[nodiscard]] CostModel cost_model() const;
  [[nodiscard]] JobPasses passes() const;

 private:
  [[nodiscard]] std::vector<PlaceMemory> places(const CostRanks& ranks,
                                                std::int64_t batch_tokens) const;
  [[nodiscard]] RankSharing sharing(const CostRanks& ranks, std::int64_t batch_tokens) const;

  RuntimeBytes runtime_;
  ExpertPopularity popularity_;
  ShapePoint point_;
  CostRanks ranks_;
};

/// The words of `moesaic study point` that such a pass is, behind the options that both verbs take.
[[nodiscard]] std::string shape_words(const Options& options);

}  // namespace moesaic
