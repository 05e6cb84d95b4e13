#include "src/parallel/expert_record.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{64} << 20;

/// `layer`: its number in the model.
void require_rows(const ExpertRecord& record, const std::vector<double>& rows, std::int64_t layer,
                  std::int64_t experts) {
  const std::int64_t count = std::ssize(rows);
  require(count >= experts, ErrorKind::file,
          "{}: layer {} has no rows of expert {}: it has {} experts, the model {}", record.path,
          layer, count, count, experts);
  require(count == experts, ErrorKind::file,
          "{}: layer {} has rows of expert {}, but the model has {} experts", record.path, layer,
          experts, experts);
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const double number = rows[static_cast<std::size_t>(expert)];
    require(number >= 0, ErrorKind::file, "{}: layer {}, expert {}: {} is no number of rows",
            record.path, layer, expert, number);
  }
}

}  // namespace

ExpertRows count_rows(const ExpertChoices& choices, std::int64_t experts) {
  ExpertRows rows;
  for (const std::vector<ExpertId>& layer : choices) {
    std::vector<std::int64_t>& counts = rows.emplace_back(static_cast<std::size_t>(experts));
    for (const ExpertId expert : layer) ++counts[static_cast<std::size_t>(expert)];
  }
  return rows;
}

ExpertRecord read_expert_record(const std::string& path) {
  const Json file = Json::read_file(path, kMaxFileBytes);
  ExpertRecord record{
      .experts_per_token = file.at("experts_per_token").as_int(), .rows = {}, .path = path};
  file.at("rows").for_each([&](const std::string&, const Json& layer) {
    std::vector<double>& rows = record.rows.emplace_back();
    layer.for_each(
        [&](const std::string&, const Json& expert) { rows.push_back(expert.as_double()); });
  });
  return record;
}

std::string expert_record_json(const ExpertRows& rows, std::int64_t experts_per_token) {
  std::vector<std::string> lines;
  for (const std::vector<std::int64_t>& layer : rows) {
    lines.push_back(fmt::format("  [{}]", fmt::join(layer, ", ")));
  }
  return fmt::format("{{\"experts_per_token\": {}, \"rows\": [\n{}\n]}}\n", experts_per_token,
                     fmt::join(lines, ",\n"));
}

void require_model(const ExpertRecord& record, const ModelExperts& model) {
  require(record.experts_per_token == model.experts_per_token, ErrorKind::file,
          "{}: experts_per_token is {}, the model chooses {}", record.path,
          record.experts_per_token, model.experts_per_token);
  const std::size_t known = std::min(record.rows.size(), model.with.size());
  require(known == model.with.size(), ErrorKind::file,
          "{}: no rows of layer {}: it has {} layers, the model has experts in {}", record.path,
          known < model.with.size() ? model.with[known] : 0, record.rows.size(), model.with.size());
  require(known == record.rows.size(), ErrorKind::file,
          "{}: rows of {} layers, but the model has experts in {}; the last is layer {}",
          record.path, record.rows.size(), model.with.size(),
          model.with.empty() ? -1 : model.with.back());
  for (std::size_t i = 0; i < known; ++i) {
    require_rows(record, record.rows[i], model.with[i], model.experts);
  }
}

ModelPlacement place_by_record(const ExpertRecord& record, const ModelExperts& model,
                               int num_ranks) {
  require_model(record, model);
  std::vector<ExpertPlacement> layers(
      static_cast<std::size_t>(std::max<std::int64_t>(model.layers, 1)),
      ExpertPlacement(std::max<std::int64_t>(model.experts, num_ranks), num_ranks));
  for (std::size_t i = 0; i < model.with.size(); ++i) {
    layers[static_cast<std::size_t>(model.with[i])] =
        ExpertPlacement::balanced(record.rows[i], num_ranks);
  }
  return ModelPlacement(std::move(layers));
}

double busiest_share(const ExpertRows& rows, std::span<const std::int64_t> with,
                     const ModelPlacement& placement) {
  std::int64_t busiest = 0;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ExpertPlacement& layer = placement.of_layer(with[i]);
    std::vector<std::int64_t> of_rank(static_cast<std::size_t>(layer.num_ranks()));
    for (std::size_t expert = 0; expert < rows[i].size(); ++expert) {
      const int rank = layer.rank_of(ExpertId{static_cast<std::int32_t>(expert)});
      of_rank[static_cast<std::size_t>(rank)] += rows[i][expert];
      all += rows[i][expert];
    }
    busiest += *std::ranges::max_element(of_rank);
  }
  if (all == 0) return 1;
  return static_cast<double>(busiest) * placement.num_ranks() / static_cast<double>(all);
}

}  // namespace moesaic
