#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moesaic {

/// What a point of a study does.
enum class StudyJob { prompt, generate, sft, layer, exchange };

/// What `moesaic study ...` takes besides the options of all verbs that run a model.
struct StudyOptions {
  // The driver, which is no rank.
  std::string study_config;
  bool retry = false;
  std::int64_t study_point = 0;  // counted from 1; 0: all
  std::vector<std::int64_t> predict_ranks = {64, 256, 1024};
  /// Every rank sends to every node: thousands of ranks are minutes of simulation, and files of GB.
  std::vector<std::int64_t> smpi_ranks = {64};
  double price_per_node_hour = 0;  // in any money; 0: not told

  // One point.
  StudyJob job = StudyJob::prompt;
  std::optional<std::string> shape;  // of one layer in place of a model
  std::int64_t shape_experts = 0;    // 0: as many as the shape has
  std::int64_t sequences = 1;        // of all ranks
  std::int64_t point_prompt = 512;
  std::int64_t point_gen = 64;
  bool no_roofs = false;
};

}  // namespace moesaic
