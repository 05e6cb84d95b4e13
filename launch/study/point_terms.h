#pragma once

#include <string>
#include <vector>

#include "launch/options/options.h"
#include "src/model/model_config.h"
#include "src/parallel/expert_popularity.h"
#include "src/parallel/step_cost.h"

namespace moesaic {

/// What a term of a point's time counts.
struct TermName {
  std::string name;
  std::string unit;
  std::string meaning;
};

/// Ranks of a point and what it does.
struct PointPlan {
  CostRanks ranks;
  double core_share = 1;  // threads by cores, at least 1
  Options options;        // of `study point`
};

/// Amounts of a repetition of a point, as src/parallel/step_cost.h counts its work: products and
/// attention by core, rows, jobs, messages and bytes of exchanges, steps.
class PointTerms {
 public:
  /// `formats`: those whose products are terms of their own. `config`: null of a shape. All must
  /// outlive this.
  PointTerms(const ModelConfig* config, const CostModel& model, std::vector<Format> formats);

  [[nodiscard]] const std::vector<TermName>& names() const noexcept { return names_; }
  [[nodiscard]] std::vector<double> amounts(const PointPlan& point,
                                            const ExpertPopularity& popularity) const;
  /// Tokens of a repetition.
  [[nodiscard]] static double tokens(const PointPlan& point);

 private:
  [[nodiscard]] CostStep step(const PointPlan& point) const;

  const ModelConfig* config_;
  const CostModel& model_;
  std::vector<Format> formats_;
  std::vector<TermName> names_;
};

/// The formats of a model's products.
[[nodiscard]] std::vector<Format> formats_of(const CostModel& model);

}  // namespace moesaic
