#include "src/model/family.h"

#include "base/error.h"
#include "src/model/delta_kind.h"
#include "src/model/gqa_kind.h"
#include "src/model/mla_kind.h"
#include "src/model/read_experts.h"

namespace moesaic {
namespace {

constexpr IntRange kAnyLayer = {0, std::int64_t{1} << 40};
constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kLinear = "linear_attention";
constexpr IntRange kInterval = {1, std::int64_t{1} << 40};

constexpr std::string_view kGptOssRope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,)"
    R"( "truncate": false, "original_max_position_embeddings": 4096})";

std::string_view always_full(const ConfigReader&, std::int64_t) {
  return kFull;
}
std::string_view always_sliding(const ConfigReader&, std::int64_t) {
  return kSliding;
}
/// dots1: windows from a layer on.
std::string_view sliding_from_layer(const ConfigReader& reader, std::int64_t layer) {
  const bool sliding = !reader.is_null("sliding_window") &&
                       layer >= reader.int_or("max_window_layers", 62, kAnyLayer);
  return sliding ? kSliding : kFull;
}
std::string_view sliding_on_even(const ConfigReader&, std::int64_t layer) {
  return layer % 2 == 0 ? kSliding : kFull;
}
/// qwen3_next: attention in the last of so many layers.
std::string_view full_by_interval(const ConfigReader& reader, std::int64_t layer) {
  const std::int64_t interval = reader.int_or("full_attention_interval", 4, kInterval);
  return (layer + 1) % interval == 0 ? kFull : kLinear;
}
/// Transformers 4.57 masks all layers alike on the CPU (max_window_layers concerns flash attention
/// alone); transformers 5 writes the choice of each qwen2_moe layer into `layer_types`.
std::string_view sliding_by_flag(const ConfigReader& reader, std::int64_t) {
  const bool sliding =
      reader.flag_or("use_sliding_window", false) && !reader.is_null("sliding_window");
  return sliding ? kSliding : kFull;
}

/// Grouped-query attention, without and with a window.
std::vector<MixerRow> gqa(const GqaTraits& traits) {
  return {{std::string(kFull), read_gqa(traits, GqaSpan::all)},
          {std::string(kSliding), read_gqa(traits, GqaSpan::window)}};
}

std::vector<MixerRow> mla(const MlaTraits& traits = {}) {
  return {{std::string(kFull), read_mla(traits)}};
}

/// Gated delta nets, and gated attention in some layers.
std::vector<MixerRow> delta(DeltaForm form) {
  return {{std::string(kLinear), read_delta(form)},
          {std::string(kFull), read_gqa({.num_kv_heads = 2,
                                         .head_dim = 256,
                                         .qkv_bias = GqaBias{"attention_bias", false},
                                         .o_bias = GqaBias{"attention_bias", false},
                                         .qk_norm = QkNorm::per_head,
                                         .rotated_share = 0.25,
                                         .gated = true},
                                        GqaSpan::all)}};
}

/// What DeepSeek-V3 has, and those that took it over.
RouterOptions sigmoid_router() {
  return {.scores = ExpertScores::sigmoid, .sum_offset = 1e-20F};
}

/// Those of DeepSeek-V3, and of families that took them over; what config.json may leave out.
MoeTraits deepseek_experts(double scale, std::int64_t groups = 1, std::int64_t kept_groups = 1) {
  MoeTraits traits{.normalize = Normalize::unless_denied,
                   .router = sigmoid_router(),
                   .scale_key = "routed_scaling_factor",
                   .usual_scale = scale,
                   .has_groups = true,
                   .topk_method = "noaux_tc",
                   .scoring = "sigmoid",
                   .choice_bias = true,
                   .shared = shared_experts("n_shared_experts", 1),
                   .usual_names = MoeNames::deepseek};
  traits.router.num_groups = groups;
  traits.router.kept_groups = kept_groups;
  return traits;
}

std::vector<Family> make_families() {
  const GqaBias by_field{"attention_bias", false};
  const GqaBias bias_unless_denied{"attention_bias", true};
  return {
      {.name = "qwen3_moe",
       .max_position_embeddings = 32768,
       .peft5_takes_experts = true,
       .mixers = gqa({.num_kv_heads = 4,
                      .window = 4096,
                      .window_flag = "use_sliding_window",
                      .qkv_bias = by_field,
                      .o_bias = by_field,
                      .qk_norm = QkNorm::per_head}),
       .usual_layer_type = sliding_by_flag,
       .moe_layers = sparse_steps,
       .experts = read_experts({}),
       .plain_mlp = read_plain_mlp()},
      {.name = "qwen2_moe",
       .max_position_embeddings = 32768,
       .mixers = gqa({.num_kv_heads = 16,
                      .window = 4096,
                      .window_flag = "use_sliding_window",
                      .qkv_bias = GqaBias{"qkv_bias", true}}),
       .usual_layer_type = sliding_by_flag,
       .reads_layer_types = true,
       .moe_layers = sparse_steps,
       .experts = read_experts({.shared = gated_shared_expert(5632)}),
       .plain_mlp = read_plain_mlp()},
      {.name = "olmoe",
       .max_position_embeddings = 4096,
       .rms_norm_eps = 1e-5,
       .eos_token_id = 50279,
       .peft5_takes_experts = true,
       .mixers = gqa({.qkv_bias = by_field,
                      .o_bias = by_field,
                      .qk_norm = QkNorm::whole,
                      .clip_key = "clip_qkv"}),
       .usual_layer_type = always_full,
       .experts = read_experts({.width_key = "intermediate_size"})},
      {.name = "mixtral",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .bos_token_id = 1,
       .eos_token_id = 2,
       .peft5_takes_experts = true,
       .mixers = gqa({.num_kv_heads = 8, .rope_theta = 1e6}),
       .usual_layer_type = always_sliding,
       .experts = read_experts({.width_key = "intermediate_size",
                                .normalize = Normalize::always,
                                .usual_names = MoeNames::mixtral})},
      {.name = "granitemoe",
       .max_position_embeddings = 2048,
       .bos_token_id = 1,
       .eos_token_id = 2,
       .has_multipliers = true,
       .mixers =
           gqa({.qkv_bias = by_field, .o_bias = by_field, .scale_key = "attention_multiplier"}),
       .usual_layer_type = always_full,
       .experts = read_experts({.width_key = "intermediate_size",
                                .router = {.scores = ExpertScores::logits},
                                .usual_names = MoeNames::granite})},
      {.name = "glm4_moe",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .mixers = gqa({.num_kv_heads = 8,
                      .qkv_bias = by_field,
                      .qk_norm = QkNorm::per_head,
                      .qk_norm_flag = "use_qk_norm",
                      .rotated_share = 0.5}),
       .usual_layer_type = always_full,
       .moe_layers = after_first_dense(1),
       .experts = read_experts(deepseek_experts(1.0)),
       .plain_mlp = read_plain_mlp()},
      {.name = "dots1",
       .max_position_embeddings = 2048,
       .mixers = gqa({.num_kv_heads = 32,
                      .window = 4096,
                      .needs_window = true,
                      .qkv_bias = by_field,
                      .o_bias = by_field,
                      .qk_norm = QkNorm::per_head}),
       .usual_layer_type = sliding_from_layer,
       .reads_layer_types = true,
       .moe_layers = after_first_dense(0),
       .experts = read_experts({.router = sigmoid_router(),
                                .scale_key = "routed_scaling_factor",
                                .has_groups = true,
                                .choice_bias = true,
                                .shared = shared_experts("n_shared_experts", 0),
                                .usual_names = MoeNames::deepseek}),
       .plain_mlp = read_plain_mlp()},
      {.name = "minimax_m2",
       .max_position_embeddings = 196608,
       .bos_token_id = 200034,
       .eos_token_id = 200020,
       .in_transformers4 = false,
       .mixers = gqa({.num_kv_heads = 8,
                      .head_dim = 128,
                      .rope_theta = 5e6,
                      .qk_norm = QkNorm::whole,
                      .rotated_share = 1.0,
                      .rotary_dim_key = "rotary_dim"}),
       .usual_layer_type = always_full,
       .experts = read_experts({.width_key = "intermediate_size",
                                .normalize = Normalize::always,
                                .router = {.scores = ExpertScores::sigmoid},
                                .scoring = "sigmoid",
                                .choice_bias = true,
                                .usual_names = MoeNames::mixtral})},
      {.name = "hy_v3",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .in_transformers4 = false,
       .mixers = gqa({.num_kv_heads = 8,
                      .head_dim = 128,
                      .rope_theta = 11158840,
                      .qkv_bias = by_field,
                      .o_bias = by_field,
                      .qk_norm = QkNorm::per_head}),
       .usual_layer_type = always_full,
       .moe_layers = after_first_dense(1),
       .experts = read_experts({.normalize = Normalize::always,
                                .router = sigmoid_router(),
                                .scale_key = "router_scaling_factor",
                                .usual_scale = 2.826,
                                .mlp_bias_key = "mlp_bias",
                                .choice_bias = true,
                                .shared = shared_experts("num_shared_experts", 1),
                                .usual_names = MoeNames::hunyuan}),
       .plain_mlp = read_plain_mlp()},
      {.name = "ernie4_5_moe",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .tie_word_embeddings = true,
       .bos_token_id = 1,
       .eos_token_id = 2,
       .mixers = gqa({.num_kv_heads = 4, .rope_theta = 5e5, .rotary_form = RotaryForm::pairs}),
       .usual_layer_type = always_full,
       .moe_layers = layer_interval,
       .experts = read_experts({.topk_key = "moe_k",
                                .normalize = Normalize::always,
                                .least_sum_key = "moe_norm_min",
                                .mlp_bias_key = "use_bias",
                                .choice_bias = true,
                                .shared = shared_experts("moe_num_shared_experts", 2),
                                .usual_names = MoeNames::ernie}),
       .plain_mlp = read_plain_mlp()},
      {.name = "deepseek_v3",
       .aliases = {"kimi_k2"},
       .max_position_embeddings = 4096,
       .bos_token_id = 0,
       .eos_token_id = 1,
       .mixers = mla(),
       .usual_layer_type = always_full,
       .moe_layers = after_first_dense(3),
       .experts = read_experts(deepseek_experts(2.5, 8, 4)),
       .plain_mlp = read_plain_mlp()},
      {.name = "deepseek_v2",
       .max_position_embeddings = 2048,
       .bos_token_id = 1,
       .eos_token_id = 2,
       .scales_scores_in_transformers4 = false,
       .mixers = mla({.rotates_pairs_alone = true}),
       .usual_layer_type = always_full,
       .moe_layers = after_first_dense(0),
       .experts = read_experts({.normalize = Normalize::never,
                                .router = {.group_score = GroupScore::largest},
                                .scale_key = "routed_scaling_factor",
                                .has_groups = true,
                                .topk_method = "group_limited_greedy",
                                .may_be_greedy = true,
                                .scoring = "softmax",
                                .mlp_bias_key = "mlp_bias",
                                .shared = shared_experts("n_shared_experts", 2),
                                .usual_names = MoeNames::deepseek}),
       .plain_mlp = read_plain_mlp()},
      {.name = "glm4_moe_lite",
       .max_position_embeddings = 202752,
       .rms_norm_eps = 1e-5,
       .bos_token_id = 0,
       .eos_token_id = 1,
       .in_transformers4 = false,
       .mixers = mla({.query_rank = 768}),
       .usual_layer_type = always_full,
       .moe_layers = after_first_dense(1),
       .experts = read_experts(deepseek_experts(1.8)),
       .plain_mlp = read_plain_mlp()},
      {.name = "gpt_oss",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .mixers = gqa({.num_kv_heads = 8,
                      .head_dim = 64,
                      .rope_theta = 150000,
                      .rope_scaling = kGptOssRope,
                      .window = 128,
                      .needs_window = true,
                      .qkv_bias = bias_unless_denied,
                      .o_bias = bias_unless_denied,
                      .sinks = true}),
       .usual_layer_type = sliding_on_even,
       .reads_layer_types = true,
       .experts = read_experts({.width_key = "intermediate_size",
                                .router = {.scores = ExpertScores::logits},
                                .router_bias = true,
                                .expert_bias = true,
                                .is_clamped = true,
                                .takes_turns = true,
                                .lies_across = true,
                                .usual_names = MoeNames::gpt_oss})},
      {.name = "qwen3_next",
       .max_position_embeddings = 32768,
       .norm_offset = 1,
       .mixers = delta(DeltaForm::by_key_head),
       .usual_layer_type = full_by_interval,
       .reads_layer_types = true,
       .moe_layers = sparse_steps,
       .experts = read_experts(
           {.normalize = Normalize::unless_denied, .shared = gated_shared_expert(512)}),
       .plain_mlp = read_plain_mlp()},
      {.name = "qwen3_5_moe",
       .aliases = {"qwen3_5_moe_text"},
       .max_position_embeddings = 32768,
       .norm_offset = 1,
       .in_transformers4 = false,
       .mixers = delta(DeltaForm::separate),
       .usual_layer_type = full_by_interval,
       .reads_layer_types = true,
       .experts =
           read_experts({.normalize = Normalize::always, .shared = gated_shared_expert(512)})},
  };
}

}  // namespace

const std::vector<Family>& known_families() {
  static const std::vector<Family> families = make_families();
  return families;
}

}  // namespace moesaic
