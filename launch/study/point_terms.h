#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/options/options.h"
#include "launch/plan/training_cost.h"
#include "launch/study/study_fit.h"
#include "src/model/model_config.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// What a term of a point's time counts.
struct TermName {
  std::string name;
  std::string unit;
  std::string meaning;
  double usual = 0;  // seconds for one, roughly, on a core or a network of today; 0: they differ
};

/// What a point runs: a model as its weights are stored, or a layer of some shape.
struct PointModel {
  std::shared_ptr<const ModelPlacement> placement{};  // null: contiguous
  std::optional<ModelConfig> config{};                // none of a shape
  std::optional<AdapterNumbers> adapters{};           // of fine-tuning
  CostModel cost{};
};

/// Which terms there are.
struct TermChoice {
  /// What lies between nodes, and how exchanges go.
  struct Way {
    std::string link;
    std::string how;
    auto operator<=>(const Way&) const = default;
  };
  std::vector<Format> formats;  // whose products are terms of their own
  bool trains = false;          // any point is of fine-tuning
  /// Options that points differ in, whose effect on exchanges is not counted: what these take with
  /// each of their values is a term of its own.
  std::vector<std::string> differing;
  std::vector<std::string> hows = {""};  // of points, as PointTerms::how() says
  std::vector<Way> ways = {{}};          // these with the links that points name
};

/// Ranks of a point and what it does.
struct PointPlan {
  CostRanks ranks;
  double core_share = 1;  // threads by cores, at least 1
  Options options;        // of `study point`
  std::string link;       // between nodes
};

/// The options `names` of a point with their values: "defer-2.half-batches-off".
[[nodiscard]] std::string how_text(const std::vector<std::string>& names, const Options& options);

/// Amounts of a repetition of a point, as src/parallel/step_cost.h counts its work: products and
/// attention by core, rows, jobs, messages and bytes of exchanges, steps.
class PointTerms {
 public:
  /// `model` must outlive this.
  PointTerms(const PointModel& model, TermChoice choice);

  [[nodiscard]] const std::vector<TermName>& names() const noexcept { return names_; }
  [[nodiscard]] UsualRates usual() const;
  [[nodiscard]] std::vector<double> amounts(const PointPlan& point,
                                            const ExpertPopularity& popularity) const;
  [[nodiscard]] TermOverlap overlap(const PointPlan& point) const;
  /// How many of the first names are of computing.
  [[nodiscard]] std::size_t num_computing_terms() const noexcept {
    return names_.size() - num_exchange_terms() - 1;
  }
  /// How many of the last names are of exchanges and sums between ranks; one more stands behind
  /// them, of steps.
  [[nodiscard]] std::size_t num_exchange_terms() const noexcept {
    return 2 * choice_.hows.size() + 2 * choice_.ways.size() + (choice_.trains ? 1 : 0);
  }
  /// What the names of a point's terms inside nodes begin with, before .messages and .bytes; and of
  /// those between nodes.
  [[nodiscard]] std::string node_term(const PointPlan& point) const;
  [[nodiscard]] std::string link_term(const PointPlan& point) const;
  /// Passes forward of a repetition.
  [[nodiscard]] static double passes(const PointPlan& point);
  /// What ranks send each other in one.
  [[nodiscard]] StepMessages messages(const PointPlan& point,
                                      const ExpertPopularity& popularity) const;
  /// Tokens of a repetition.
  [[nodiscard]] static double tokens(const PointPlan& point);

 private:
  [[nodiscard]] TermChoice::Way way(const PointPlan& point) const;
  [[nodiscard]] std::string link_term(const TermChoice::Way& way) const;
  [[nodiscard]] CostStep step(const PointPlan& point) const;
  /// Of a repetition of fine-tuning, of another job's step.
  [[nodiscard]] StepWork work(const PointPlan& point, const ExpertPopularity& popularity) const;

  const PointModel& model_;
  TermChoice choice_;
  std::vector<TermName> names_;
};

/// The formats of a model's products.
[[nodiscard]] std::vector<Format> formats_of(const CostModel& model);

}  // namespace moesaic
