#include "src/model/mla_kind.h"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/attention_gradient.h"
#include "src/model/mla_attention.h"

namespace moesaic {
namespace {

constexpr IntRange kHeadCounts = {1, std::int64_t{1} << 14};
constexpr IntRange kHeadWidths = kHeadCounts;
/// Of all layers: rows of each are named.
constexpr std::int64_t kMostHeads = std::int64_t{1} << 20;
/// Fewer heads would rather share a pass over keys than be another thread's.
constexpr std::int64_t kLeastGroup = 8;
/// Of a backward pass: fewer would be small products.
constexpr std::int64_t kLeastHeadsAtOnce = 4;

/// A head's rows of kv_b_proj are packed in panels of their own.
std::int64_t read_whole_panels(const ConfigReader& reader, std::string_view key) {
  const std::int64_t width = reader.required_int(key, kHeadWidths);
  require(width % kPanelColumns == 0, ErrorKind::file,
          "{}: {} {} is not supported: it is to be a multiple of {}", reader.json().where(), key,
          width, kPanelColumns);
  return width;
}

void read_sizes(const ConfigReader& reader, const MlaTraits& traits, MlaConfig& config) {
  config.num_heads = reader.required_int("num_attention_heads", kHeadCounts);
  const std::int64_t kv_heads = reader.int_or("num_key_value_heads", config.num_heads, kHeadCounts);
  require(kv_heads == config.num_heads, ErrorKind::file,
          "{}: num_key_value_heads {} is not num_attention_heads {}: in latent attention every "
          "head has keys and values of its own",
          reader.json().where(), kv_heads, config.num_heads);
  if (!reader.is_null("q_lora_rank")) {
    config.query_rank = reader.int_or("q_lora_rank", traits.query_rank, kWidths);
  }
  config.latent = reader.required_int("kv_lora_rank", kWidths);
  config.nope_dim = read_whole_panels(reader, "qk_nope_head_dim");
  config.rope_dim = reader.required_int("qk_rope_head_dim", kHeadWidths);
  config.value_dim = read_whole_panels(reader, "v_head_dim");
  for (const auto& [key, width] :
       {std::pair("kv_lora_rank", config.latent), {"qk_rope_head_dim", config.rope_dim}}) {
    require(width % 2 == 0, ErrorKind::file, "{}: {} {} is not supported: it is to be even",
            reader.json().where(), key, width);
  }
}

AdapterSite site(const std::string& module, std::int64_t out, std::int64_t in) {
  return {.kind = AdapterKind::attention, .module = module, .out = out, .in = in};
}

NamedWeight vector_of(std::string name, TensorSlice part) {
  return {.name = std::move(name), .parts = {std::move(part)}, .form = WeightForm::vector};
}

NamedWeight matrix_of(const LayerTensors& tensors, std::string name, const std::string& module,
                      std::int64_t rows, std::int64_t cols) {
  return {.name = std::move(name),
          .parts = {tensors.matrix(module, rows, cols)},
          .sites = {site(module, rows, cols)}};
}

/// `rows` of each head's rows of kv_b_proj, from `first` on, one head below the other.
NamedWeight rows_of_heads(const LayerTensors& tensors, const MlaConfig& config, std::string name,
                          std::int64_t first, std::int64_t rows) {
  const std::int64_t head_rows = config.nope_dim + config.value_dim;
  NamedWeight weight;
  weight.name = std::move(name);
  for (std::int64_t head = 0; head < config.num_heads; ++head) {
    TensorSlice& slice = weight.parts.emplace_back(
        tensors.matrix("self_attn.kv_b_proj", config.num_heads * head_rows, config.latent));
    slice.first_row = head * head_rows + first;
    slice.rows = rows;
  }
  return weight;
}

}  // namespace

AttentionShape MlaConfig::shape(std::int64_t tokens, int threads) const noexcept {
  std::int64_t parts = 1;
  for (std::int64_t more = 2; more <= num_heads; ++more) {
    if (num_heads % more != 0) continue;
    const bool is_long = num_heads / parts > kAttentionRows;  // of several passes over keys
    const bool is_lonely = tokens * parts < threads && num_heads / more >= kLeastGroup;
    if (!is_long && !is_lonely) break;
    parts = more;
  }
  return {.kv_heads = parts, .group = num_heads / parts, .value_dim = latent};
}

std::int64_t MlaConfig::heads_at_once(int threads) const noexcept {
  return std::min(num_heads, round_up(kLeastHeadsAtOnce, threads));
}

std::vector<NamedWeight> MlaKind::weights(const LayerTensors& tensors) const {
  const std::int64_t hidden = config_.hidden;
  const std::int64_t queries = config_.num_heads * config_.query_dim();
  const std::string q_a = "self_attn.q_a_proj";
  const std::string kv_a = "self_attn.kv_a_proj_with_mqa";
  const std::string o = "self_attn.o_proj";
  const auto norm = [&](std::string_view below, std::int64_t size) {
    return vector_slice(tensors.name(below), size);
  };
  std::vector<NamedWeight> weights(MlaWeight::kCount);
  if (config_.query_rank > 0) {
    weights[MlaWeight::kQA] = matrix_of(tensors, "q_a", q_a, config_.query_rank, hidden);
    weights[MlaWeight::kQANorm] =
        vector_of("q_a_norm", norm("self_attn.q_a_layernorm.weight", config_.query_rank));
    weights[MlaWeight::kQ] =
        matrix_of(tensors, "q", "self_attn.q_b_proj", queries, config_.query_rank);
  } else {
    weights[MlaWeight::kQ] = matrix_of(tensors, "q", "self_attn.q_proj", queries, hidden);
  }
  weights[MlaWeight::kKvA] = matrix_of(tensors, "kv_a", kv_a, config_.key_dim(), hidden);
  weights[MlaWeight::kKvANorm] =
      vector_of("kv_a_norm", norm("self_attn.kv_a_layernorm.weight", config_.latent));
  weights[MlaWeight::kKeys] = rows_of_heads(tensors, config_, "keys", 0, config_.nope_dim);
  AdapterSite kv_b =
      site("self_attn.kv_b_proj", config_.num_heads * (config_.nope_dim + config_.value_dim),
           config_.latent);
  kv_b.heads = config_.num_heads;
  weights[MlaWeight::kKeys].sites.push_back(std::move(kv_b));
  weights[MlaWeight::kValues] =
      rows_of_heads(tensors, config_, "values", config_.nope_dim, config_.value_dim);
  weights[MlaWeight::kOut] =
      matrix_of(tensors, "o", o, hidden, config_.num_heads * config_.value_dim);
  if (!config_.bias) return weights;
  if (config_.query_rank > 0) {
    weights[MlaWeight::kQABias] = vector_of("q_a_bias", tensors.bias(q_a, config_.query_rank));
  }
  weights[MlaWeight::kKvABias] = vector_of("kv_a_bias", tensors.bias(kv_a, config_.key_dim()));
  weights[MlaWeight::kOutBias] = vector_of("o_bias", tensors.bias(o, hidden));
  return weights;
}

/// The latent stands there twice: as the first part of the key, and as the value.
CacheNeeds MlaKind::cache(Precision precision) const {
  const AttentionKind kind = attention_kind(precision);
  return {.page_bytes =
              key_block_bytes(kind, config_.key_dim()) + value_block_bytes(kind, config_.latent)};
}

MixerWork MlaKind::work(Precision precision, std::int64_t tokens) const {
  const auto n = static_cast<double>(tokens);
  const double keys = n * (n + 1) / 2;  // seen
  const auto numbers = static_cast<double>(config_.key_dim() + config_.latent);
  return {.flops = 2.0 * static_cast<double>(config_.num_heads) * numbers * keys,
          .cache_bytes = numbers * static_cast<double>(element_bytes(precision)) * keys};
}

/// As that of grouped-query attention with one key head.
double MlaKind::left_out_flops(std::int64_t tokens) const {
  const std::int64_t together = std::max<std::int64_t>(1, kAttentionRows / config_.num_heads);
  const std::int64_t keys = std::min(tokens, together) + kKeysPerBlock;
  return 2 * static_cast<double>(config_.num_heads * (config_.key_dim() + config_.latent)) *
         static_cast<double>(keys) / 2;
}

TokenNumbers MlaKind::token_numbers() const {
  return {.head_dim = config_.key_dim(),
          .heads = config_.num_heads * config_.key_dim(),
          .rotated = (config_.num_heads + 1) * config_.rope_dim,
          .angles = config_.rope_dim / 2,
          .normed = config_.query_rank + config_.latent,
          .stored = config_.key_dim() + config_.latent};
}

/// What MlaAttention has: projected rows, those that attention works on, rotary angles, and where
/// each head's rows are.
std::int64_t MlaKind::row_bytes() const {
  return 4 * (config_.projected_width() + config_.mixed_width() + config_.rope_dim) +
         2 * 8 * config_.num_heads;
}

/// Besides the states of segments: what each thread gathers, and works in.
std::int64_t MlaKind::pass_bytes(const PassSize& pass) const {
  const AttentionShape shape = config_.shape(pass.tokens, pass.threads);
  const std::int64_t rows = std::max(kAttentionTaskRows, config_.num_heads);
  return 4 * AttentionPlan::most_state_floats(shape, pass.tokens, pass.positions, pass.threads) +
         pass.threads * (4 * rows * (config_.key_dim() + config_.latent + 2) +
                         attention_scratch_bytes(config_.key_dim(), config_.latent));
}

/// What MlaGradient has: keys and inner query rows as attention had them, and gradients of inner
/// rows, queries, latents and input.
std::int64_t MlaKind::backward_bytes() const {
  return 4 * (2 * config_.key_dim() + 2 * config_.query_rank + config_.queries_width() +
              config_.hidden);
}

/// The heads that are at work, and one as a worker packs it.
std::int64_t MlaKind::backward_pass_bytes(const PassSize& pass) const {
  return pass.tokens * config_.heads_at_once(pass.threads) * 4 * config_.gradient_width() +
         pass.threads *
             attention_gradient_scratch_bytes(pass.positions, config_.key_dim(), config_.latent);
}

bool MlaKind::depends_on_prompt_length() const {
  return config_.rope.type == RopeType::dynamic || config_.rope.type == RopeType::longrope;
}

MixerText MlaKind::text() const {
  return {
      .label = "heads",
      .sizes = fmt::format("{} of {} + {}, values of {}; latent of {}", config_.num_heads,
                           config_.nope_dim, config_.rope_dim, config_.value_dim, config_.latent),
      .positions =
          fmt::format("rope {} (theta {})", rope_type_name(config_.rope.type), config_.rope.theta)};
}

void MlaKind::write_fields(JsonWriter& out) const {
  out.field("heads", config_.num_heads)
      .field("q_lora_rank", config_.query_rank)
      .field("kv_lora_rank", config_.latent)
      .field("qk_nope_head_dim", config_.nope_dim)
      .field("qk_rope_head_dim", config_.rope_dim)
      .field("v_head_dim", config_.value_dim)
      .field("rope", rope_type_name(config_.rope.type))
      .field("rope_theta", config_.rope.theta);
}

std::unique_ptr<TokenMixer> MlaKind::make_mixer(LayerContext& context) const {
  return make_mla_attention(config_, context);
}

ReadMixer read_mla(const MlaTraits& traits) {
  return [traits](const ConfigReader& reader, const ModelConfig& model) {
    MlaConfig config{.hidden = model.hidden_size};
    read_sizes(reader, traits, config);
    require(model.num_layers() * config.num_heads <= kMostHeads, ErrorKind::file,
            "{}: {} layers of num_attention_heads {} are more than {} heads in all",
            reader.json().where(), model.num_layers(), config.num_heads, kMostHeads);
    config.bias = reader.flag_or("attention_bias", false);
    config.rope = read_rope_config(
        reader.json(),
        {.head_dim = config.rope_dim, .max_position_embeddings = model.max_position_embeddings});
    const bool has_pairs = traits.rotates_pairs_alone || reader.flag_or("rope_interleave", true);
    config.rope.form = has_pairs ? RotaryForm::pairs : RotaryForm::halves;
    require(config.rope.partial_rotary_factor == 1, ErrorKind::file,
            "{}: partial_rotary_factor {} is not supported: qk_rope_head_dim says what is rotated",
            reader.json().where(), config.rope.partial_rotary_factor);
    const double mscale = attention_mscale(config.rope);
    config.scale = mscale * mscale / std::sqrt(static_cast<double>(config.query_dim()));
    require(std::isnormal(static_cast<float>(config.scale)), ErrorKind::file,
            "{}: mscale_all_dim {} with a factor of {} gives scores a scale of {}",
            reader.json().where(), config.rope.mscale_all_dim, config.rope.factor, config.scale);
    return std::make_shared<const MlaKind>(config);
  };
}

}  // namespace moesaic
