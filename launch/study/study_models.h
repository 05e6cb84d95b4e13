#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "launch/study/point_terms.h"
#include "launch/study/study_table.h"

namespace moesaic {

/// The points of a study, and what they are made of: of models the headers alone are read.
class StudyModels {
 public:
  explicit StudyModels(const std::vector<StudyRow>& rows);

  [[nodiscard]] PointTerms terms(const PointPlan& plan) { return {model_of(plan), choice_}; }
  /// Why there can be no such point: "7 ranks cannot ...", or what its shape cannot be. Empty if
  /// there can.
  [[nodiscard]] std::string obstacle(const PointPlan& plan);
  /// Whether there can; if not, `log` is told why, once for all points that have the same obstacle.
  [[nodiscard]] bool can_run(const PointPlan& plan, const Log& log);
  /// A measured point as it was, or as it would be on other `ranks`.
  [[nodiscard]] static PointPlan plan(const PointRecord& record, std::int64_t ranks);

 private:
  const PointModel& model_of(const PointPlan& plan);

  std::map<std::string, PointModel> models_;
  TermChoice choice_;
  std::set<std::string> told_;  // by can_run()
};

/// The experts' popularity in a measured point: as its ranks counted, or even if it has no count;
/// where experts grow with the ranks, as its options say.
[[nodiscard]] ExpertPopularity popularity_of(const PointRecord& record);

/// Of each group of points that are alike in all but the ranks, the measured one with most of
/// these: its place in `rows`. `labels`: group_labels().
[[nodiscard]] std::vector<std::size_t> largest_of_groups(const std::vector<StudyRow>& rows,
                                                         const std::vector<std::string>& labels);

}  // namespace moesaic
