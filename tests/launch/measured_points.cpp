#include "tests/launch/measured_points.h"

#include <optional>

#include "launch/study/measurement.h"

namespace moesaic::test {

PointRecord measured(std::int64_t ranks, double seconds, const std::string& batch) {
  PointRecord record{.id = "id" + std::to_string(ranks) + batch, .kind = "strong", .job = "prompt"};
  record.ranks = ranks;
  record.options = {{"batch-size", batch}, {"sequences", "4"}};
  record.launch.start = "2026-01-02T03:04:05Z";
  Measurement m;
  m.ranks = m.threads = m.cores = ranks;
  m.tokens = 1000;
  m.samples = {seconds, seconds};
  m.seconds = seconds;
  m.ci95 = seconds / 10;
  m.phases[static_cast<std::size_t>(Phase::experts)] = {seconds / 2, seconds / 2};
  m.phases[static_cast<std::size_t>(Phase::wait)] = {seconds / 4, seconds / 3};
  m.experts = m.layers = 2;
  m.experts_per_token = 1;
  m.hidden = m.sequences = 4;
  m.expert_format = "<b>";
  record.measurement = m;
  return record;
}

std::vector<StudyRow> study() {
  PointRecord shared = measured(8, 3, "32");
  shared.measurement->is_oversubscribed = true;
  shared.measurement->cores = 4;
  PointRecord failed = measured(16, 1, "32");
  failed.measurement.reset();
  failed.error = PointError{4, "not enough <memory>"};
  return compare_points(
      {measured(2, 8, "32"), measured(4, 5, "32"), shared, failed, measured(2, 6, "64")},
      std::nullopt);
}

}  // namespace moesaic::test
