#include "src/model/family.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "src/model/gqa_kind.h"

namespace moesaic {
namespace {

constexpr IntRange kExperts = {1, std::int64_t{1} << 16};
constexpr IntRange kStep = {1, std::int64_t{1} << 40};

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

/// Experts go by several names; where a file has two, they must agree.
std::int64_t read_num_experts(const ConfigReader& reader) {
  const auto experts = reader.find_int("num_experts", kExperts);
  const auto local = reader.find_int("num_local_experts", kExperts);
  require(experts || local, ErrorKind::file,
          "{}: field \"num_experts\" is missing, and \"num_local_experts\" too",
          reader.json().where());
  require(!experts || !local || *experts == *local, ErrorKind::file,
          "{}: num_experts is {}, but num_local_experts is {}", reader.json().where(),
          experts.value_or(0), local.value_or(0));
  return experts ? *experts : *local;
}

/// Whether the chosen experts' weights are divided by their sum.
enum class Normalize { by_field, always };

struct MoeTraits {
  std::string width_key = "moe_intermediate_size";
  bool has_shared = false;
  bool softmax_over_all = true;
  Normalize normalize = Normalize::by_field;  // of softmax_over_all
  MoeNames usual_names = MoeNames::qwen;
};

ReadFeedForward experts(MoeTraits traits) {
  return [traits = std::move(traits)](const ConfigReader& reader, const ModelConfig& model) {
    MoeConfig config;
    config.hidden = model.hidden_size;
    config.usual_names = traits.usual_names;
    config.experts = read_num_experts(reader);
    config.router.topk =
        reader.required_int("num_experts_per_tok", {1, std::min(config.experts, kMostChosen)});
    config.expert_width = reader.required_int(traits.width_key, kWidths);
    if (traits.has_shared) {
      config.shared_width = reader.int_or("shared_expert_intermediate_size", 5632, kWidths);
    }
    config.router.softmax_over_all = traits.softmax_over_all;
    config.router.normalize = traits.softmax_over_all && (traits.normalize == Normalize::always ||
                                                          reader.flag_or("norm_topk_prob", false));
    return std::make_shared<const MoeKind>(config);
  };
}

ReadFeedForward plain_mlp() {
  return [](const ConfigReader& reader, const ModelConfig& model) {
    return std::make_shared<const PlainMlpKind>(model.hidden_size,
                                                reader.required_int("intermediate_size", kWidths));
  };
}

/// `Qwen3MoeDecoderLayer.__init__`, and the same in qwen2_moe.
std::vector<bool> sparse_steps(const ConfigReader& reader, std::int64_t num_layers) {
  const std::int64_t step = reader.int_or("decoder_sparse_step", 1, kStep);
  std::set<std::int64_t> plain;
  if (const auto list = reader.find("mlp_only_layers")) {
    require(list->is_array(), ErrorKind::file, "{}: expected an array", list->where());
    for (std::int64_t i = 0; i < list->size(); ++i) plain.insert(list->at(i).as_int());
  }
  std::vector<bool> moe;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    moe.push_back(!plain.contains(layer) && (layer + 1) % step == 0);
  }
  return moe;
}

std::string_view always_full(const ConfigReader&, std::int64_t) {
  return kFull;
}
std::string_view always_sliding(const ConfigReader&, std::int64_t) {
  return kSliding;
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

std::vector<Family> make_families() {
  const GqaBias by_field{"attention_bias", false};
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
       .experts = experts({}),
       .plain_mlp = plain_mlp()},
      {.name = "qwen2_moe",
       .max_position_embeddings = 32768,
       .mixers = gqa({.num_kv_heads = 16,
                      .window = 4096,
                      .window_flag = "use_sliding_window",
                      .qkv_bias = GqaBias{"qkv_bias", true}}),
       .usual_layer_type = sliding_by_flag,
       .reads_layer_types = true,
       .moe_layers = sparse_steps,
       .experts = experts({.has_shared = true}),
       .plain_mlp = plain_mlp()},
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
       .experts = experts({.width_key = "intermediate_size"})},
      {.name = "mixtral",
       .max_position_embeddings = 131072,
       .rms_norm_eps = 1e-5,
       .bos_token_id = 1,
       .eos_token_id = 2,
       .peft5_takes_experts = true,
       .mixers = gqa({.num_kv_heads = 8, .rope_theta = 1e6}),
       .usual_layer_type = always_sliding,
       .experts = experts({.width_key = "intermediate_size",
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
       .experts = experts({.width_key = "intermediate_size",
                           .softmax_over_all = false,
                           .usual_names = MoeNames::granite})},
  };
}

}  // namespace

const std::vector<Family>& known_families() {
  static const std::vector<Family> families = make_families();
  return families;
}

}  // namespace moesaic
