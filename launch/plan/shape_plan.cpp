#include "launch/plan/shape_plan.h"

#include <fmt/core.h>

#include "launch/plan/cost_model.h"

namespace moesaic {
namespace {

/// A pass over --batch-size tokens of each rank.
ShapePoint planned_point(const Options& options) {
  const LayerShape shape = parse_layer_shape(*options.shape, options.shape_experts);
  require_runnable(shape, "--shape");
  return {.shape = shape,
          .layout = options.expert_format.value_or(Layout{.format = Format::bf16}),
          .pass_tokens = options.batch_size};
}

}  // namespace

ShapePlan::ShapePlan(const Options& options, const RuntimeBytes& runtime)
    : runtime_(runtime),
      popularity_(ExpertPopularity::from_text(options.plan_routing)),
      point_(planned_point(options)),
      ranks_(planned_ranks(options, point_.shape.experts)) {}

RankSharing ShapePlan::sharing(const CostRanks& ranks, std::int64_t batch_tokens) const {
  RankSharing result{.sharers = ranks.sharers(),
                     .nodes = ranks.sharer_nodes(),
                     .all_tokens = batch_tokens * ranks.sharers(),
                     .threads = ranks.threads};
  expect_rows({point_.shape.experts, point_.shape.topk}, popularity_, result);
  return result;
}

std::vector<PlaceMemory> ShapePlan::places(const CostRanks& ranks,
                                           std::int64_t batch_tokens) const {
  const RankSharing among = sharing(ranks, batch_tokens);
  const ExpertPlacement placement(point_.shape.experts, ranks.sharers());
  ShapePoint point = point_;
  point.pass_tokens = batch_tokens;
  std::vector<PlaceMemory> places;
  for (int rank = 0; rank < ranks.sharers(); ++rank) {
    PlaceMemory place{.memory = {},
                      .first_expert = placement.experts_start_idx(rank),
                      .experts = placement.num_local_experts(rank)};
    place.memory = shape_memory(point, place.experts, among);
    place.expert_formats[static_cast<std::size_t>(point.layout.format)] =
        place.memory.own[MemoryItem::expert];
    place.memory.own[MemoryItem::runtime] = runtime_.rank;
    place.memory.shared[MemoryItem::runtime] = runtime_.node;
    places.push_back(place);
  }
  return places;
}

JobMemory ShapePlan::memory(std::int64_t batch_tokens) const {
  return job_memory(ranks_, places(ranks_, batch_tokens));
}

int ShapePlan::fewest_nodes(std::int64_t limit) const {
  return moesaic::fewest_nodes(ranks_, point_.shape.experts, [&](const CostRanks& ranks) {
    return job_memory(ranks, places(ranks, point_.pass_tokens)).node.total() <= limit;
  });
}

CostModel ShapePlan::cost_model() const {
  return make_cost_model(point_.shape, point_.layout, Precision::bf16);
}

JobPasses ShapePlan::passes() const {
  const auto rows = static_cast<double>(point_.pass_tokens);
  return {.prompt = {.step = {.rows = rows, .logits_rows = 0}, .tokens = rows * ranks_.ranks},
          .generation = {},
          .training = {}};
}

std::string shape_words(const Options& options) {
  return fmt::format(" --job layer --sequences {} --n-prompt {}", options.plan_ranks,
                     options.batch_size);
}

}  // namespace moesaic
