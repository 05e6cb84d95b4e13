#include "launch/plan/cost_model.h"

#include <optional>
#include <set>

#include "launch/job/model_facts.h"
#include "launch/shapes/layer_copies.h"
#include "src/moe/int8_rows.h"
#include "src/moe/wire_form.h"
#include "src/moe/wire_rows.h"

namespace moesaic {
namespace {

/// A product with this matrix.
void add(std::vector<CostWeights>& products, const PackedMatrix& matrix) {
  if (matrix.rows == 0) return;
  const auto outputs = static_cast<double>(matrix.rows);
  const auto inputs = static_cast<double>(matrix.depth);
  products.push_back({.format = matrix.layout.format,
                      .weights = outputs * inputs,
                      .bytes = static_cast<double>(matrix.bytes()),
                      .columns = outputs,
                      .packed = inputs,
                      .results = outputs});
}

/// A gated MLP; gate, up and down stand in `weights` from `first` on.
void add_mlp(std::vector<CostWeights>& products, const WeightSet& weights, std::size_t first) {
  const PackedMatrix& gate = weights[first].matrix;
  const PackedMatrix& down = weights[first + 2].matrix;
  if (gate.rows == 0) return;
  const auto hidden = static_cast<double>(gate.depth);
  const auto width = static_cast<double>(gate.rows);
  const bool is_alike = down.layout.format == gate.layout.format;
  products.push_back({.format = gate.layout.format,
                      .weights = (is_alike ? 3 : 2) * hidden * width,
                      .bytes = 2 * static_cast<double>(gate.bytes()),
                      .columns = 2 * width,
                      .packed = hidden,
                      .results = 0,
                      .gated = width});
  CostWeights* last = &products.back();
  if (!is_alike) {
    last = &products.emplace_back(
        CostWeights{.format = down.layout.format, .weights = hidden * width});
  }
  last->bytes += static_cast<double>(down.bytes());
  last->columns += hidden;
  last->packed += width;
  last->results += hidden;
}

/// `names` in the order of `weights`: of all experts.
void add_feed_forward(CostLayer& layer, const std::vector<NamedWeight>& names,
                      const WeightSet& weights) {
  for (std::size_t i = 0; i < names.size();) {
    const NamedWeight& name = names[i];
    if (i + 2 < names.size() && names[i + 1].joins_previous) {
      if (name.role != WeightRole::expert) add_mlp(layer.common, weights, i);
      if (name.role == WeightRole::expert && name.expert == 0) add_mlp(layer.expert, weights, i);
      i += 3;
    } else {
      add(name.form == WeightForm::f32_matrix ? layer.router : layer.common, weights[i].matrix);
      ++i;
    }
  }
}

void add_mixer(CostLayer& layer, const MixerKind& kind, const WeightSet& weights) {
  for (const Weight& weight : weights) add(layer.mixer, weight.matrix);
  const TokenNumbers row = kind.token_numbers();
  layer.heads = static_cast<double>(row.heads);
  layer.rotated = static_cast<double>(row.rotated);
  layer.normed = static_cast<double>(row.normed);
  layer.stored = static_cast<double>(row.stored);
}

/// With which all experts of all layers take int8 codes of their rows; none: some take others.
std::optional<Int8Rows::Scales> common_scales(const ModelNames& names, const ModelWeights& weights,
                                              Int4Activations int4_activations) {
  std::optional<Int8Rows::Scales> common;
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const std::vector<NamedWeight>& parts = names.layers[l].feed_forward;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const bool is_gate = parts[i].role == WeightRole::expert && parts[i + 1].joins_previous;
      if (!is_gate) continue;
      const auto scales = int8_scales(weights.layers[l].feed_forward[i].matrix, int4_activations);
      if (!scales || (common && common != scales)) return {};
      common = scales;
    }
  }
  return common;
}

/// As MoeLayer writes them, with `scales` of common_scales().
WireSizes wire_sizes(const CostModel& model, Precision precision, const MoeOptions& moe,
                     std::optional<Int8Rows::Scales> scales) {
  std::int64_t numbers = model.hidden * element_bytes(precision);
  if (scales) {
    if (moe.int8_rows) numbers = Int8Rows(model.hidden, *scales).bytes();
  } else if (moe.wire == WireForm::int8) {
    numbers = WireCodec::bytes(moe.wire, model.hidden);
  }
  WireRows row(nullptr, numbers, model.experts_per_token);
  const bool adds_parts = moe.combine == Combine::fast;
  if (adds_parts) {
    row.have(WireRows::Extra::weights);
    row.resize(0);
  }
  const bool is_exact = moe.wire == WireForm::exact;
  return {.row_bytes = row.row_bytes(),
          .tag_bytes = row.words_bytes(),
          .result_bytes = is_exact ? 4 * model.hidden : WireCodec::bytes(moe.wire, model.hidden),
          .part_bytes = adds_parts ? 4 * model.hidden : 0};
}

}  // namespace

CostModel make_cost_model(const OpenModel& model, const LoadOptions& load, const MoeOptions& moe,
                          Int4Activations int4_activations) {
  const ModelConfig& config = model.config;
  const ModelPlacement all(ExpertPlacement(config.num_experts, 1));
  LoadOptions whole = load;
  whole.placement = &all;
  whole.expert_rank = 0;
  const ModelLoader loader(model.files, config, whole);
  const ModelWeights& weights = loader.planned();
  const ModelNames names = model.files.names(config);
  CostModel result{.hidden = config.hidden_size,
                   .num_experts = config.num_experts,
                   .experts_per_token = config.experts_per_token,
                   .vocabulary = config.vocab_size,
                   .scales_logits = config.logits_scaling != 1,
                   .rounds_rows = load.precision == Precision::bf16};
  std::set<const MixerKind*> kinds;
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    CostLayer& layer = result.layers.emplace_back();
    const MixerKind& kind = *config.layers[l].mixer;
    const TokenNumbers row = kind.token_numbers();
    if (row.head_dim > 0) result.head_dim = row.head_dim;
    if (kinds.insert(&kind).second) result.angles += row.angles;
    add_mixer(layer, kind, weights.layers[l].mixer);
    add_feed_forward(layer, names.layers[l].feed_forward, weights.layers[l].feed_forward);
  }
  add(result.head, weights.lm_head);
  result.wire =
      wire_sizes(result, load.precision, moe, common_scales(names, weights, int4_activations));
  return result;
}

CostModel make_cost_model(const LayerShape& shape, const Layout& layout, Precision precision) {
  const auto experts = static_cast<double>(shape.experts);
  const auto hidden = static_cast<double>(shape.hidden);
  const auto width = static_cast<double>(shape.intermediate);
  CostLayer layer;
  layer.router = {{.format = Format::f32,
                   .weights = experts * hidden,
                   .bytes = 4 * experts * hidden,
                   .columns = experts,
                   .packed = hidden,
                   .results = experts}};
  layer.expert = {{.format = layout.format,
                   .weights = 3 * hidden * width,
                   .bytes = static_cast<double>(layer_bytes(shape, layout, 1)),
                   .columns = hidden + 2 * width,
                   .packed = hidden + width,
                   .results = hidden,
                   .gated = width}};
  CostModel result{.hidden = shape.hidden,
                   .num_experts = shape.experts,
                   .experts_per_token = shape.topk,
                   .rounds_rows = layout.format != Format::f32,
                   .layers = {std::move(layer)}};
  result.wire = wire_sizes(result, precision, {}, {});
  return result;
}

MixerWork pass_work(const ModelConfig& config, Precision precision, const PassTokens& pass) {
  const MixerWork before = mixer_work(config, precision, pass.first);
  const MixerWork after = mixer_work(config, precision, pass.first + pass.tokens);
  const auto sequences = static_cast<double>(pass.sequences);
  double left_out = 0;
  for (const LayerConfig& layer : config.layers) {
    if (pass.at_once > 1) left_out += layer.mixer->left_out_flops(pass.at_once);
  }
  left_out *= static_cast<double>(pass.tokens);
  return {.flops = sequences * (after.flops - before.flops + left_out),
          .cache_bytes = sequences * (after.cache_bytes - before.cache_bytes)};
}

}  // namespace moesaic
