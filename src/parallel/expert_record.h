#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/parallel/expert_placement.h"

namespace moesaic {

/// How many rows the experts of each layer got: [layers with experts][experts].
using ExpertRows = std::vector<std::vector<std::int64_t>>;
/// Which experts tokens chose, one token after the other: [layers with experts][tokens * topk].
using ExpertChoices = std::vector<std::vector<ExpertId>>;

/// How often `choices` have each of `experts`.
[[nodiscard]] ExpertRows count_rows(const ExpertChoices& choices, std::int64_t experts);

/// As a file has them, of another run perhaps.
struct ExpertRecord {
  std::int64_t experts_per_token = 0;
  std::vector<std::vector<double>> rows;  // [layers with experts][experts]
  std::string path;
};

/// Reads JSON with "experts_per_token" and "rows". Throws Error{file} naming path and field.
[[nodiscard]] ExpertRecord read_expert_record(const std::string& path);

/// What read_expert_record() reads, a line for each layer.
[[nodiscard]] std::string expert_record_json(const ExpertRows& rows,
                                             std::int64_t experts_per_token);

/// A model, to whoever places its experts.
struct ModelExperts {
  std::int64_t layers = 0;         // with and without experts
  std::vector<std::int64_t> with;  // the layers that have some, ascending
  std::int64_t experts = 0;        // of each of these
  std::int64_t experts_per_token = 0;
};

/// Throws Error{file} that names path, layer and expert where the record is not of such a model.
void require_model(const ExpertRecord& record, const ModelExperts& model);

/// The balanced placement of each layer for the rows of a record. Throws as
/// require_model().
[[nodiscard]] ModelPlacement place_by_record(const ExpertRecord& record, const ModelExperts& model,
                                             int num_ranks);

/// Rows of the ranks with most, of each layer, added, by those of the ranks' mean: 1 where all have
/// the same. `with`: the layers that the rows are of.
[[nodiscard]] double busiest_share(const ExpertRows& rows, std::span<const std::int64_t> with,
                                   const ModelPlacement& placement);

}  // namespace moesaic
