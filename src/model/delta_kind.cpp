#include "src/model/delta_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "src/model/delta_gradient.h"
#include "src/model/delta_net.h"

namespace moesaic {
namespace {

constexpr IntRange kDeltaHeads = {1, std::int64_t{1} << 14};
constexpr IntRange kDeltaWidths = kDeltaHeads;
constexpr IntRange kDeltaTaps = {1, 1024};

AdapterSite projection_site(const std::string& module, std::int64_t out, std::int64_t in) {
  return {.kind = AdapterKind::attention, .module = module, .out = out, .in = in};
}

/// Matrices of so many rows each, one below the other, each with a place for an adapter.
NamedWeight projections(const LayerTensors& tensors, std::string name, std::int64_t depth,
                        const std::vector<std::pair<std::string, std::int64_t>>& modules) {
  NamedWeight weight;
  weight.name = std::move(name);
  std::int64_t rows = 0;
  for (const auto& [module, count] : modules) {
    weight.parts.push_back(tensors.matrix(module, count, depth));
    AdapterSite& site = weight.sites.emplace_back(projection_site(module, count, depth));
    site.first_row = std::exchange(rows, rows + count);
  }
  if (modules.size() == 1) return weight;
  for (AdapterSite& site : weight.sites) site.stacked_rows = rows;
  return weight;
}

NamedWeight delta_vector(std::string name, TensorSlice part) {
  return {.name = std::move(name), .parts = {std::move(part)}, .form = WeightForm::vector};
}

}  // namespace

std::vector<NamedWeight> DeltaKind::weights(const LayerTensors& tensors) const {
  const DeltaConfig& c = config_;
  const auto vector = [&](std::string name, std::string_view below, std::int64_t size) {
    return delta_vector(std::move(name), vector_slice(tensors.name(below), size));
  };
  std::vector<NamedWeight> weights(DeltaWeight::kCount);
  NamedWeight& rates = weights[DeltaWeight::kRates];
  if (c.form == DeltaForm::separate) {
    weights[DeltaWeight::kIn] = projections(
        tensors, "delta_in", c.hidden,
        {{"linear_attn.in_proj_qkv", c.channels()}, {"linear_attn.in_proj_z", c.value_width()}});
    rates = projections(
        tensors, "delta_rates", c.hidden,
        {{"linear_attn.in_proj_b", c.value_heads}, {"linear_attn.in_proj_a", c.value_heads}});
  } else {
    weights[DeltaWeight::kIn] = projections(tensors, "delta_in", c.hidden,
                                            {{"linear_attn.in_proj_qkvz", c.projected_width()}});
    rates = projections(tensors, "delta_rates", c.hidden,
                        {{"linear_attn.in_proj_ba", 2 * c.value_heads}});
  }
  rates.form = WeightForm::f32_matrix;
  TensorSlice taps{.tensor = tensors.name("linear_attn.conv1d.weight"),
                   .shape = {c.channels(), 1, c.taps},
                   .rows = c.taps,
                   .cols = c.channels()};
  taps.is_transposed = true;  // a tap's weights lie together
  weights[DeltaWeight::kConvolution] = delta_vector("delta_convolution", std::move(taps));
  weights[DeltaWeight::kDecayLogs] = vector("delta_decay_logs", "linear_attn.A_log", c.value_heads);
  weights[DeltaWeight::kStepBias] = vector("delta_step_bias", "linear_attn.dt_bias", c.value_heads);
  weights[DeltaWeight::kNorm] = vector("delta_norm", "linear_attn.norm.weight", c.value_dim);
  weights[DeltaWeight::kOut] =
      projections(tensors, "delta_out", c.value_width(), {{"linear_attn.out_proj", c.hidden}});
  return weights;
}

CacheNeeds DeltaKind::cache(Precision) const {
  return {.state_bytes = 4 * config_.state_floats()};
}

/// Of an element of a state: two operations for what keys find there, one for the decay, and four
/// for what is added and what queries find.
MixerWork DeltaKind::work(Precision, std::int64_t tokens) const {
  const auto n = static_cast<double>(tokens);
  const std::int64_t elements = config_.key_dim * config_.value_width();
  return {.flops = n * static_cast<double>(7 * elements + 2 * config_.taps * config_.channels()),
          .cache_bytes = n * static_cast<double>(4 * config_.state_floats())};
}

/// What DeltaNet has: projected rows, rates and steps as projected and as they act, the convolved
/// channels, the results.
std::int64_t DeltaKind::row_bytes() const {
  return 4 * (config_.projected_width() + 4 * config_.value_heads + config_.channels() +
              config_.value_width());
}

/// What DeltaStash has: projected rows, rates and steps, the results.
std::int64_t DeltaKind::kept_bytes() const {
  return 4 * (config_.projected_width() + 2 * config_.value_heads + config_.value_width());
}

/// What DeltaGradient has: gradients of results, or of the layer's input, and of rates and steps.
std::int64_t DeltaKind::backward_bytes() const {
  return 4 * (std::max(config_.value_width(), config_.hidden) + 2 * config_.value_heads);
}

std::int64_t DeltaKind::backward_pass_bytes(const PassSize& pass) const {
  return 4 * pass.threads * DeltaGradient::worker_floats(config_, pass.positions);
}

MixerText DeltaKind::text() const {
  return {.label = "delta heads",
          .sizes = fmt::format("{} of {}, {} of {} for queries and keys", config_.value_heads,
                               config_.value_dim, config_.key_heads, config_.key_dim),
          .positions = fmt::format("convolution of {}", config_.taps)};
}

void DeltaKind::write_fields(JsonWriter& out) const {
  out.field("linear_num_key_heads", config_.key_heads)
      .field("linear_num_value_heads", config_.value_heads)
      .field("linear_key_head_dim", config_.key_dim)
      .field("linear_value_head_dim", config_.value_dim)
      .field("linear_conv_kernel_dim", config_.taps);
}

std::unique_ptr<TokenMixer> DeltaKind::make_mixer(LayerContext& context) const {
  return make_delta_net(config_, context);
}

ReadMixer read_delta(DeltaForm form) {
  return [form](const ConfigReader& reader, const ModelConfig& model) {
    DeltaConfig config{
        .hidden = model.hidden_size, .rms_norm_eps = model.rms_norm_eps, .form = form};
    config.key_heads = reader.int_or("linear_num_key_heads", 16, kDeltaHeads);
    config.value_heads = reader.int_or("linear_num_value_heads", 32, kDeltaHeads);
    config.key_dim = reader.int_or("linear_key_head_dim", 128, kDeltaWidths);
    config.value_dim = reader.int_or("linear_value_head_dim", 128, kDeltaWidths);
    config.taps = reader.int_or("linear_conv_kernel_dim", 4, kDeltaTaps);
    require(config.value_heads % config.key_heads == 0, ErrorKind::file,
            "{}: linear_num_value_heads {} is no multiple of linear_num_key_heads {}",
            reader.json().where(), config.value_heads, config.key_heads);
    return std::make_shared<const DeltaKind>(config);
  };
}

}  // namespace moesaic
