#include "launch/study/study_models.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "launch/job/placement_choice.h"
#include "launch/options/option_table.h"
#include "launch/plan/cost_model.h"
#include "launch/shapes/shape_point.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {
namespace {

/// The options of `study point` that a point had.
Options options_of(const PointRecord& record) {
  std::vector<std::string> words = {"study", "point"};
  for (const auto& [name, value] : record.options) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", name, value));
  }
  return parse_command(words, {}).options;
}

/// `sharers`: ranks that share the experts; 0: any number, each with a slice of them.
PointModel make_model(const Options& options, bool sends_codes, int sharers) {
  if (options.shape) {
    const ShapePoint point = shape_point(options, 1);
    return {.cost = make_cost_model(point.shape, point.layout, options.precision)};
  }
  const OpenModel model = open_model(options);
  LoadOptions load;
  load.precision = options.precision;
  load.layouts = model.layouts;
  PointModel result{.config = model.config};
  if (options.job == StudyJob::sft) {
    result.adapters = adapter_numbers(trained_adapters(options, model), model.config);
  }
  result.cost = make_cost_model(
      model, load, {.wire = options.wire, .combine = options.combine, .int8_rows = sends_codes},
      options.int4_activations);
  if (sharers > 0 && sharers <= model.config.num_experts) {
    result.placement = std::make_shared<const ModelPlacement>(
        PlacementChoice(options.placement).place(model.config, sharers));
    result.cost.placement = result.placement.get();
  }
  return result;
}

/// Of these the work that is told knows nothing, and times do.
constexpr std::array kUncounted = {"defer", "half-batches"};

}  // namespace

StudyModels::StudyModels(const std::vector<StudyRow>& rows) {
  std::vector<PointPlan> plans;
  for (const StudyRow& row : rows) {
    if (!row.record.measurement) continue;
    plans.push_back(plan(row.record, row.record.measurement->ranks));
  }
  for (const char* name : kUncounted) {
    const auto differs = [&](const PointPlan& plan) {
      return how_text({name}, plan.options) != how_text({name}, plans.front().options);
    };
    if (std::ranges::any_of(plans, differs)) choice_.differing.emplace_back(name);
  }
  std::set<Format> formats;
  std::set<std::string> hows;
  std::set<TermChoice::Way> ways;
  for (const PointPlan& plan : plans) {
    const PointModel& model = model_of(plan);
    for (const Format format : formats_of(model.cost)) formats.insert(format);
    choice_.trains = choice_.trains || model.adapters;
    const std::string how = how_text(choice_.differing, plan.options);
    hows.insert(how);
    ways.insert({plan.link, how});
  }
  choice_.formats.assign(formats.begin(), formats.end());
  choice_.hows.assign(hows.begin(), hows.end());
  choice_.ways.assign(ways.begin(), ways.end());
}

PointPlan StudyModels::plan(const PointRecord& record, std::int64_t ranks) {
  const Measurement& m = *record.measurement;
  PointPlan plan{.ranks = {}, .core_share = 1, .options = options_of(record), .link = record.link};
  const std::int64_t told = plan.options.ranks_per_node;
  const std::int64_t seen = m.nodes > 1 ? (m.ranks + m.nodes - 1) / m.nodes : ranks;
  plan.ranks = {.ranks = static_cast<int>(ranks),
                .ranks_per_node = static_cast<int>(told > 0 ? told : seen),
                .threads = static_cast<int>(std::max<std::int64_t>(1, m.threads / m.ranks)),
                .expert_replicas = static_cast<int>(m.replicas),
                .by_messages = plan.options.transport == Transport::mpi};
  if (ranks == m.ranks) {
    plan.core_share = static_cast<double>(m.threads) / static_cast<double>(m.cores);
  } else if (record.kind != "strong") {
    plan.options.sequences = plan.options.sequences / m.ranks * ranks;
    if (record.kind == "experts") {
      plan.options.shape_experts = plan.options.shape_experts / m.ranks * ranks;
    }
  }
  return plan;
}

std::string StudyModels::obstacle(const PointPlan& plan) {
  const CostRanks& ranks = plan.ranks;
  try {
    require_replicas(ranks.ranks, ranks.expert_replicas);  // before a model of their shares is made
    require_experts(model_of(plan).cost.num_experts, ranks.ranks, ranks.expert_replicas);
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();
  }
}

bool StudyModels::can_run(const PointPlan& plan, const Log& log) {
  const std::string reason = obstacle(plan);
  if (reason.empty()) return true;
  const std::string text = fmt::format("{} ranks are left out: {}", plan.ranks.ranks, reason);
  if (told_.insert(text).second) log.once(LogLevel::warning, "{}", text);
  return false;
}

const PointModel& StudyModels::model_of(const PointPlan& plan) {
  const Options& options = plan.options;
  const bool sends_codes = plan.ranks.nodes() > 1 && options.job != StudyJob::sft;
  const bool is_sliced = options.shape || PlacementChoice(options.placement).is_contiguous();
  const int sharers = is_sliced ? 0 : plan.ranks.sharers();
  std::string key = fmt::format("{}\n{}\n", sends_codes ? "codes" : "", sharers);
  for (const char* name : {"job", "lora", "lora-rank", "lora-targets", "model", "shape", "experts",
                           "precision", "expert-format", "dense-format", "head-format",
                           "int4-activations", "wire", "combine", "placement"}) {
    key += value_text(*find_option(name, Verb::study_point), options) + "\n";
  }
  const auto found = models_.find(key);
  return found != models_.end()
             ? found->second
             : models_.emplace(key, make_model(options, sends_codes, sharers)).first->second;
}

ExpertPopularity popularity_of(const PointRecord& record) {
  const Measurement& m = *record.measurement;
  std::vector<std::vector<double>> rows;
  for (const std::vector<std::int64_t>& layer : m.expert_rows) {
    rows.emplace_back(layer.begin(), layer.end());
  }
  if (record.kind == "experts") {
    const auto routing = record.options.find("routing");
    require(routing != record.options.end(), ErrorKind::file,
            "point {}: its options do not say how tokens chose experts (routing)", record.id);
    return ExpertPopularity::from_text(routing->second);  // of any number of them
  }
  if (rows.empty()) return ExpertPopularity::even();
  return ExpertPopularity::recorded(std::move(rows), m.experts_per_token, "point " + record.id);
}

std::vector<std::size_t> largest_of_groups(const std::vector<StudyRow>& rows,
                                           const std::vector<std::string>& labels) {
  std::map<std::string, std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].record.measurement) continue;
    const auto [known, is_new] = found.try_emplace(labels[i], i);
    const Measurement& largest = *rows[known->second].record.measurement;
    if (rows[i].record.measurement->ranks > largest.ranks) known->second = i;
  }
  std::vector<std::size_t> places;
  for (const auto& [label, place] : found) places.push_back(place);
  std::ranges::sort(places);
  return places;
}

}  // namespace moesaic
