#include "launch/plan/cost_model.h"

#include <algorithm>

#include "launch/bench/layer_copies.h"
#include "launch/job/model_facts.h"
#include "src/moe/int8_rows.h"
#include "src/moe/wire_form.h"
#include "src/moe/wire_rows.h"

namespace moesaic {
namespace {

void add(std::vector<CostWeights>& sum, const PackedMatrix& matrix) {
  if (matrix.rows == 0) return;
  const Format format = matrix.layout.format;
  auto found = std::ranges::find(sum, format, &CostWeights::format);
  if (found == sum.end()) found = sum.insert(found, CostWeights{.format = format});
  found->weights += static_cast<double>(matrix.rows * matrix.depth);
  found->bytes += static_cast<double>(matrix.bytes());
}

/// `names` in the order of `weights`: of all experts.
void add_feed_forward(CostLayer& layer, const std::vector<NamedWeight>& names,
                      const WeightSet& weights) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const NamedWeight& name = names[i];
    if (name.role == WeightRole::expert) {
      if (name.expert == 0) add(layer.expert, weights[i].matrix);
    } else {
      add(name.form == WeightForm::f32_matrix ? layer.router : layer.common, weights[i].matrix);
    }
  }
}

/// Whether the experts of all layers compute with int8 rows.
bool take_codes(const CostModel& model) {
  return std::ranges::all_of(model.layers, [](const CostLayer& layer) {
    return std::ranges::all_of(layer.expert,
                               [](const CostWeights& part) { return is_integer(part.format); });
  });
}

/// As MoeLayer writes them.
WireSizes wire_sizes(const CostModel& model, Precision precision, const MoeOptions& moe) {
  std::int64_t numbers = model.hidden * element_bytes(precision);
  if (take_codes(model)) {
    if (moe.int8_rows) numbers = Int8Rows(model.hidden, Int8Rows::Scales::row).bytes();
  } else if (moe.wire == WireForm::int8) {
    numbers = WireCodec::bytes(moe.wire, model.hidden);
  }
  WireRows row(numbers, model.experts_per_token);
  const bool adds_parts = moe.combine == Combine::fast;
  if (adds_parts) {
    row.have(WireRows::Extra::weights);
    row.resize(0);
  }
  const bool is_exact = moe.wire == WireForm::exact;
  return {.row_bytes = row.row_bytes(),
          .tag_bytes = row.words_bytes(),
          .result_bytes = is_exact ? 4 * model.hidden : WireCodec::bytes(moe.wire, model.hidden),
          .adds_parts = adds_parts};
}

}  // namespace

CostModel make_cost_model(const OpenModel& model, const LoadOptions& load, const MoeOptions& moe) {
  const ModelConfig& config = model.config;
  const ModelPlacement all(ExpertPlacement(std::max<std::int64_t>(config.num_experts, 1), 1));
  LoadOptions whole = load;
  whole.placement = &all;
  whole.expert_rank = 0;
  const ModelLoader loader(model.files, config, whole);
  const ModelWeights& weights = loader.planned();
  const ModelNames names = model.files.names(config);
  CostModel result{.hidden = config.hidden_size,
                   .num_experts = config.num_experts,
                   .experts_per_token = config.experts_per_token};
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    CostLayer& layer = result.layers.emplace_back();
    for (const Weight& weight : weights.layers[l].mixer) add(layer.mixer, weight.matrix);
    add_feed_forward(layer, names.layers[l].feed_forward, weights.layers[l].feed_forward);
  }
  add(result.head, weights.lm_head);
  result.wire = wire_sizes(result, load.precision, moe);
  return result;
}

CostModel make_cost_model(const LayerShape& shape, const Layout& layout, Precision precision) {
  const auto router = static_cast<double>(shape.experts * shape.hidden);
  CostLayer layer;
  layer.router = {{Format::f32, router, 4 * router}};
  layer.expert = {{layout.format, static_cast<double>(3 * shape.hidden * shape.intermediate),
                   static_cast<double>(layer_bytes(shape, layout, 1))}};
  CostModel result{.hidden = shape.hidden,
                   .num_experts = shape.experts,
                   .experts_per_token = shape.topk,
                   .layers = {std::move(layer)}};
  result.wire = wire_sizes(result, precision, {});
  return result;
}

MixerWork pass_work(const ModelConfig& config, Precision precision, const PassTokens& pass) {
  const MixerWork before = mixer_work(config, precision, pass.first);
  const MixerWork after = mixer_work(config, precision, pass.first + pass.tokens);
  const auto sequences = static_cast<double>(pass.sequences);
  return {.flops = sequences * (after.flops - before.flops),
          .cache_bytes = sequences * (after.cache_bytes - before.cache_bytes)};
}

}  // namespace moesaic
