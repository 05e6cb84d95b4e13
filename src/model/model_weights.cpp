#include "src/model/model_weights.h"

#include <chrono>
#include <utility>

#include "src/model/weight_plan.h"

namespace moesaic {
namespace {

WeightPlan plan_rank(const ModelFiles& files, const ModelConfig& config, const LoadOptions& options,
                     ModelWeights& weights) {
  const WeightRequest request{
      .layouts = LayoutChoice(options.precision, options.layouts),
      .experts = {.first = options.placement->experts_start_idx(options.expert_rank),
                  .count = options.placement->num_local_experts(options.expert_rank)}};
  return plan_weights(files, config, request, weights);
}

}  // namespace

WeightBytes count_weight_bytes(const ModelFiles& files, const ModelConfig& config,
                               const LoadOptions& options) {
  ModelWeights weights;
  WeightPlan plan = plan_rank(files, config, options, weights);
  return WeightStore(files, std::move(plan.weights), options.stored).bytes();
}

std::unique_ptr<ModelWeights> load_model_weights(const ModelFiles& files, const ModelConfig& config,
                                                 const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto weights = std::make_unique<ModelWeights>();
  weights->precision = options.precision;
  weights->files = files;
  WeightPlan plan = plan_rank(files, config, options, *weights);
  weights->notes = std::move(plan.notes);
  WeightStore store(files, std::move(plan.weights), options.stored);
  WeightStore::Memory memory = store.load(*options.node, *options.pool, options.progress);
  weights->node_memory = std::move(memory.node);
  weights->rank_memory = std::move(memory.rank);
  weights->report = {
      .read_bytes = memory.read_bytes,
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      .weights = store.bytes()};
  return weights;
}

}  // namespace moesaic
