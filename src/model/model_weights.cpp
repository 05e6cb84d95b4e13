#include "src/model/model_weights.h"

#include <chrono>
#include <utility>

#include "src/model/weight_plan.h"

namespace moesaic {

ModelLoader::ModelLoader(const ModelFiles& files, const ModelConfig& config,
                         const LoadOptions& options)
    : options_(options), weights_(std::make_unique<ModelWeights>()) {
  weights_->precision = options.precision;
  weights_->files = files;
  weights_->placement = *options.placement;
  const WeightRequest request{.layouts = LayoutChoice(options.precision, options.layouts),
                              .experts = HeldExperts(*options.placement, options.expert_rank),
                              .on_device = options.on_device,
                              .input_scales = options.input_scales,
                              .only_layer = options.only_layer};
  WeightPlan plan = plan_weights(weights_->files, config, request, *weights_);
  weights_->notes = std::move(plan.notes);
  store_ = std::make_unique<WeightStore>(weights_->files, std::move(plan.weights), options.stored);
}

std::unique_ptr<ModelWeights> ModelLoader::load() {
  const auto start = std::chrono::steady_clock::now();
  LongWork work(options_.world != nullptr ? *options_.world : *options_.node, "loading",
                options_.waiting);
  WeightStore::Memory memory = store_->load(
      {.node = *options_.node, .work = work, .pool = *options_.pool, .device = options_.device},
      options_.progress);
  weights_->node_memory = std::move(memory.node);
  weights_->rank_memory = std::move(memory.rank);
  weights_->report = {
      .read_bytes = memory.read_bytes,
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      .weights = store_->bytes()};
  return std::move(weights_);
}

std::unique_ptr<ModelWeights> load_model_weights(const ModelFiles& files, const ModelConfig& config,
                                                 const LoadOptions& options) {
  return ModelLoader(files, config, options).load();
}

}  // namespace moesaic
