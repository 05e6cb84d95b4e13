#include "src/model/gqa_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/attention_gradient.h"
#include "src/model/gqa_attention.h"

namespace moesaic {
namespace {

constexpr IntRange kHeads = {1, std::int64_t{1} << 14};
constexpr IntRange kHeadDim = kHeads;
constexpr IntRange kWindow = {1, std::int64_t{1} << 40};

void read_heads(const ConfigReader& reader, const GqaTraits& traits, GqaConfig& config) {
  config.num_heads = reader.required_int("num_attention_heads", kHeads);
  const bool as_many = traits.num_kv_heads == 0 || reader.is_null("num_key_value_heads");
  config.num_kv_heads = reader.int_or("num_key_value_heads",
                                      as_many ? config.num_heads : traits.num_kv_heads, kHeads);
  require(config.num_heads % config.num_kv_heads == 0, ErrorKind::file,
          "{}: num_attention_heads {} is no multiple of num_key_value_heads {}",
          reader.json().where(), config.num_heads, config.num_kv_heads);
  const std::int64_t usual =
      traits.head_dim > 0 ? traits.head_dim : config.hidden / config.num_heads;
  config.head_dim = reader.int_or("head_dim", usual, kHeadDim);
  require(config.head_dim > 0 && config.head_dim % 2 == 0, ErrorKind::file,
          "{}: head_dim (by default hidden_size {} / num_attention_heads {}) is {}; rotary "
          "embedding needs an even number above 0",
          reader.json().where(), config.hidden, config.num_heads, config.head_dim);
}

RopeConfig read_rope(const ConfigReader& reader, const GqaTraits& traits, const GqaConfig& config,
                     std::int64_t max_positions) {
  RopeContext context{traits.rope_theta, config.head_dim, max_positions,
                      traits.rotated_share.value_or(1.0)};
  if (!traits.rope_scaling.empty()) context.default_scaling = traits.rope_scaling;
  if (!traits.rotary_dim_key.empty()) {
    if (const auto rotated = reader.find_int(traits.rotary_dim_key, {1, config.head_dim})) {
      context.default_partial_factor =
          static_cast<double>(*rotated) / static_cast<double>(config.head_dim);
      context.partial_key = traits.rotary_dim_key;
    }
  }
  RopeConfig rope = read_rope_config(reader.json(), context);
  rope.form = traits.rotary_form;
  require(traits.rotated_share || rope.partial_rotary_factor == 1, ErrorKind::file,
          "{}: partial_rotary_factor {} is not supported: transformers rotates whole heads of "
          "these families, or fails",
          reader.json().where(), rope.partial_rotary_factor);
  return rope;
}

/// `layer_types` may name windowed layers while the window is switched off: they see all.
std::int64_t read_window(const ConfigReader& reader, const GqaTraits& traits) {
  const bool switched_off =
      !traits.window_flag.empty() && !reader.flag_or(traits.window_flag, false);
  require(!traits.needs_window || !reader.is_null("sliding_window"), ErrorKind::file,
          "{}: sliding_window: null, but there are layers with a window (layer_types)",
          reader.json().where());
  if (switched_off || reader.is_null("sliding_window")) return 0;
  return reader.int_or("sliding_window", traits.window, kWindow);
}

struct Shape {
  std::int64_t out = 0;
  std::int64_t in = 0;
};

AdapterSite site(const std::string& module, const Shape& shape) {
  return {.kind = AdapterKind::attention, .module = module, .out = shape.out, .in = shape.in};
}

/// Of rows of a stacked weight.
AdapterSite site_in(std::int64_t stacked_rows, std::int64_t first_row, AdapterSite part) {
  part.first_row = first_row;
  part.stacked_rows = stacked_rows;
  return part;
}

}  // namespace

std::vector<NamedWeight> GqaKind::weights(const LayerTensors& tensors) const {
  const std::int64_t q = config_.gate_width() + config_.q_width();
  const std::int64_t kv = config_.kv_width();
  const std::string q_name = "self_attn.q_proj";
  const std::string k_name = "self_attn.k_proj";
  const std::string v_name = "self_attn.v_proj";
  const std::string o_name = "self_attn.o_proj";
  std::vector<NamedWeight> weights(kSinks + 1);
  weights[kQkv] = {.name = "qkv",
                   .parts = {tensors.matrix(q_name, q, config_.hidden),
                             tensors.matrix(k_name, kv, config_.hidden),
                             tensors.matrix(v_name, kv, config_.hidden)},
                   .sites = {site_in(q + 2 * kv, 0, site(q_name, {q, config_.hidden})),
                             site_in(q + 2 * kv, q, site(k_name, {kv, config_.hidden})),
                             site_in(q + 2 * kv, q + kv, site(v_name, {kv, config_.hidden}))}};
  weights[kO] = {.name = "o",
                 .parts = {tensors.matrix(o_name, config_.hidden, config_.q_width())},
                 .sites = {site(o_name, {config_.hidden, config_.q_width()})}};
  const auto vector = [](std::string name, std::vector<TensorSlice> parts) {
    return NamedWeight{
        .name = std::move(name), .parts = std::move(parts), .form = WeightForm::vector};
  };
  if (config_.qkv_bias) {
    weights[kQkvBias] = vector(
        "qkv_bias", {tensors.bias(q_name, q), tensors.bias(k_name, kv), tensors.bias(v_name, kv)});
  }
  if (config_.o_bias) weights[kOBias] = vector("o_bias", {tensors.bias(o_name, config_.hidden)});
  if (config_.sinks) {
    weights[kSinks] =
        vector("sinks", {vector_slice(tensors.name("self_attn.sinks"), config_.num_heads)});
  }
  if (config_.qk_norm == QkNorm::none) return weights;
  const bool whole = config_.qk_norm == QkNorm::whole;
  const auto norm = [&](std::string_view name, std::int64_t width) {
    return vector_slice(tensors.name(name), whole ? width : config_.head_dim, config_.norm_offset);
  };
  weights[kQNorm] = vector("q_norm", {norm("self_attn.q_norm.weight", config_.q_width())});
  weights[kKNorm] = vector("k_norm", {norm("self_attn.k_norm.weight", kv)});
  return weights;
}

CacheNeeds GqaKind::cache(Precision precision) const {
  const AttentionKind kind = attention_kind(precision);
  return {.page_bytes = config_.num_kv_heads * (key_block_bytes(kind, config_.head_dim) +
                                                value_block_bytes(kind, config_.head_dim))};
}

MixerWork GqaKind::work(Precision precision, std::int64_t tokens) const {
  const std::int64_t growing = config_.window > 0 ? std::min(config_.window, tokens) : tokens;
  const auto n = static_cast<double>(growing);
  const double keys = n * (n + 1) / 2 + static_cast<double>(tokens - growing) * n;  // seen
  return {.flops = 4.0 * static_cast<double>(config_.q_width()) * keys,
          .cache_bytes =
              2.0 * static_cast<double>(config_.kv_width() * element_bytes(precision)) * keys};
}

/// Rows of one pass over keys meet as many as the last of them sees, in whole blocks.
double GqaKind::left_out_flops(std::int64_t tokens) const {
  const std::int64_t together =
      std::max<std::int64_t>(1, kAttentionRows * config_.num_kv_heads / config_.num_heads);
  const std::int64_t keys = std::min(tokens, together) + kKeysPerBlock;
  return 4 * static_cast<double>(config_.q_width()) * static_cast<double>(keys) / 2;
}

TokenNumbers GqaKind::token_numbers() const {
  const std::int64_t heads = config_.num_heads + config_.num_kv_heads;
  return {.head_dim = config_.head_dim,
          .heads = config_.q_width(),
          .rotated = heads * config_.rope.rotary_dim,
          .angles = config_.rope.rotary_dim / 2,
          .normed = config_.qk_norm == QkNorm::none ? 0 : heads * config_.head_dim,
          .stored = 2 * config_.kv_width()};
}

/// What GqaAttention has: gates, queries, keys and values, the attended rows, rotary angles.
std::int64_t GqaKind::row_bytes() const {
  return 4 * (config_.projected_width() + config_.q_width() + config_.head_dim);
}

std::int64_t GqaKind::pass_bytes(const PassSize& pass) const {
  return 4 * AttentionPlan::most_state_floats(config_.shape(), pass.tokens, pass.positions,
                                              pass.threads);
}

/// What GqaStash has: gates, queries, keys and values as projected, the attended rows,
/// log-sum-exps.
std::int64_t GqaKind::kept_bytes() const {
  return 4 * (config_.projected_width() + config_.q_width() + config_.num_heads);
}

/// What GqaGradient has: gradients of the projected rows, and those that the query heads of a group
/// give for the keys and values that they share.
std::int64_t GqaKind::backward_bytes() const {
  const std::int64_t parts = config_.num_heads > config_.num_kv_heads ? 2 * config_.q_width() : 0;
  return 4 * (config_.projected_width() + parts);
}

/// A head's rows as a worker of GqaGradient packs them.
std::int64_t GqaKind::backward_pass_bytes(const PassSize& pass) const {
  return pass.threads *
         attention_gradient_scratch_bytes(pass.positions, config_.head_dim, config_.head_dim);
}

bool GqaKind::depends_on_prompt_length() const {
  return config_.rope.type == RopeType::dynamic || config_.rope.type == RopeType::longrope;
}

MixerText GqaKind::text() const {
  return {
      .label = "heads",
      .sizes = fmt::format("{} of {}, {} for keys and values{}", config_.num_heads,
                           config_.head_dim, config_.num_kv_heads, config_.gated ? "; gated" : ""),
      .positions =
          fmt::format("rope {} (theta {})", rope_type_name(config_.rope.type), config_.rope.theta)};
}

void GqaKind::write_fields(JsonWriter& out) const {
  out.field("heads", config_.num_heads)
      .field("kv_heads", config_.num_kv_heads)
      .field("head_dim", config_.head_dim)
      .field("rope", rope_type_name(config_.rope.type))
      .field("rope_theta", config_.rope.theta);
}

std::unique_ptr<TokenMixer> GqaKind::make_mixer(LayerContext& context) const {
  return make_gqa_attention(config_, context);
}

ReadMixer read_gqa(GqaTraits traits, GqaSpan span) {
  return [traits = std::move(traits), span](const ConfigReader& reader, const ModelConfig& model) {
    GqaConfig config{.hidden = model.hidden_size,
                     .qk_norm = traits.qk_norm,
                     .sinks = traits.sinks,
                     .gated = traits.gated,
                     .norm_offset = model.norm_offset};
    read_heads(reader, traits, config);
    const auto bias = [&](const std::optional<GqaBias>& field) {
      return field && reader.flag_or(field->key, field->otherwise);
    };
    config.qkv_bias = bias(traits.qkv_bias);
    config.o_bias = bias(traits.o_bias);
    config.rms_norm_eps = model.rms_norm_eps;
    if (!traits.qk_norm_flag.empty() && !reader.flag_or(traits.qk_norm_flag, false)) {
      config.qk_norm = QkNorm::none;
    }
    if (!traits.clip_key.empty()) config.clip_qkv = reader.find_positive(traits.clip_key);
    config.scale = traits.scale_key.empty() ? 1.0 / std::sqrt(static_cast<double>(config.head_dim))
                                            : reader.positive_or(traits.scale_key, 1.0);
    if (span == GqaSpan::window) config.window = read_window(reader, traits);
    config.rope = read_rope(reader, traits, config, model.max_position_embeddings);
    return std::make_shared<const GqaKind>(config);
  };
}

}  // namespace moesaic
