#include "src/checkpoint/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "src/checkpoint/config_reader.h"

namespace moesaic {
namespace {

// Bounds on sizes, far above any model, under which no product of those that make up a tensor
// exceeds 63 bits.
constexpr IntRange kWidth = {1, std::int64_t{1} << 20};
constexpr IntRange kHeads = {1, std::int64_t{1} << 14};
constexpr IntRange kLayers = {1, std::int64_t{1} << 14};
constexpr IntRange kExperts = {1, std::int64_t{1} << 16};
constexpr IntRange kVocabulary = {1, std::int64_t{1} << 28};
constexpr IntRange kPositions = {1, std::int64_t{1} << 40};
constexpr IntRange kWindow = {0, std::int64_t{1} << 40};
constexpr IntRange kTokenId = {INT64_MIN, std::int64_t{1} << 40};

/// What transformers' configuration class of a family says where config.json is silent.
struct FamilyDefaults {
  ModelFamily family;
  std::string_view name;
  std::string_view expert_width_key;
  std::int64_t num_kv_heads;  ///< 0: as many as heads
  std::int64_t max_position_embeddings;
  double rms_norm_eps;
  double rope_theta;
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> eos_token_id;
};

constexpr std::array<FamilyDefaults, 5> kFamilies = {{
    {ModelFamily::qwen3_moe, "qwen3_moe", "moe_intermediate_size", 4, 32768, 1e-6, 1e4, {}, {}},
    {ModelFamily::qwen2_moe, "qwen2_moe", "moe_intermediate_size", 16, 32768, 1e-6, 1e4, {}, {}},
    {ModelFamily::olmoe, "olmoe", "intermediate_size", 0, 4096, 1e-5, 1e4, {}, 50279},
    {ModelFamily::mixtral, "mixtral", "intermediate_size", 8, 131072, 1e-5, 1e6, 1, 2},
    {ModelFamily::granitemoe, "granitemoe", "intermediate_size", 0, 2048, 1e-6, 1e4, 1, 2},
}};

const FamilyDefaults& find_family(const ConfigReader& reader) {
  const Json type = reader.json().at("model_type");
  for (const FamilyDefaults& family : kFamilies) {
    if (family.name == type.as_string_view()) return family;
  }
  std::string supported;
  for (const FamilyDefaults& family : kFamilies) {
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.name);
  }
  fail(ErrorKind::file, "{}: model family \"{}\" is not supported; these are: {}", type.where(),
       type.as_string_view(), supported);
}

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

/// Sizes that every saved config has are asked for, not guessed.
void read_sizes(const ConfigReader& reader, const FamilyDefaults& family, ModelConfig& config) {
  config.vocab_size = reader.required_int("vocab_size", kVocabulary);
  config.hidden_size = reader.required_int("hidden_size", kWidth);
  config.num_layers = reader.required_int("num_hidden_layers", kLayers);
  config.num_heads = reader.required_int("num_attention_heads", kHeads);
  const bool as_many = family.num_kv_heads == 0 || reader.is_null("num_key_value_heads");
  config.num_kv_heads = reader.int_or("num_key_value_heads",
                                      as_many ? config.num_heads : family.num_kv_heads, kHeads);
  require(config.num_heads % config.num_kv_heads == 0, ErrorKind::file,
          "{}: num_attention_heads {} is no multiple of num_key_value_heads {}",
          reader.json().where(), config.num_heads, config.num_kv_heads);
  config.head_dim = reader.int_or("head_dim", config.hidden_size / config.num_heads, kHeads);
  require(config.head_dim > 0 && config.head_dim % 2 == 0, ErrorKind::file,
          "{}: head_dim (by default hidden_size {} / num_attention_heads {}) is {}; rotary "
          "embedding needs an even number above 0",
          reader.json().where(), config.hidden_size, config.num_heads, config.head_dim);
  config.max_position_embeddings =
      reader.int_or("max_position_embeddings", family.max_position_embeddings, kPositions);
  config.rms_norm_eps = reader.positive_or("rms_norm_eps", family.rms_norm_eps);
  config.tie_word_embeddings = reader.flag_or("tie_word_embeddings", false);
  config.dtype = reader.string_or("dtype", reader.string_or("torch_dtype", ""));
  const std::string activation = reader.string_or("hidden_act", "silu");
  require(activation == "silu" || activation == "swish", ErrorKind::file,
          "{}: hidden_act: \"{}\" is not supported, only \"silu\" is", reader.json().where(),
          activation);
}

/// Which layers are MoE: `Qwen3MoeDecoderLayer.__init__`, and the same in qwen2_moe.
void read_layer_kinds(const ConfigReader& reader, const FamilyDefaults& family,
                      ModelConfig& config) {
  config.is_moe.assign(static_cast<std::size_t>(config.num_layers), true);
  if (family.family != ModelFamily::qwen3_moe && family.family != ModelFamily::qwen2_moe) return;
  const std::int64_t step = reader.int_or("decoder_sparse_step", 1, kPositions);
  std::set<std::int64_t> dense;
  if (const auto list = reader.find("mlp_only_layers")) {
    for (std::int64_t i = 0; i < list->size(); ++i) dense.insert(list->at(i).as_int());
  }
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.is_moe[static_cast<std::size_t>(layer)] =
        !dense.contains(layer) && (layer + 1) % step == 0;
  }
  if (config.num_moe_layers() < config.num_layers) {
    config.dense_intermediate = reader.required_int("intermediate_size", kWidth);
  }
}

void read_experts(const ConfigReader& reader, const FamilyDefaults& family, ModelConfig& config) {
  config.num_experts = read_num_experts(reader);
  config.experts_per_token = reader.required_int("num_experts_per_tok", {1, config.num_experts});
  config.moe_intermediate = reader.required_int(family.expert_width_key, kWidth);
  switch (family.family) {
    case ModelFamily::qwen2_moe:
      config.shared_intermediate = reader.int_or("shared_expert_intermediate_size", 5632, kWidth);
      [[fallthrough]];
    case ModelFamily::qwen3_moe:
    case ModelFamily::olmoe:
      config.norm_topk_prob = reader.flag_or("norm_topk_prob", false);
      break;
    case ModelFamily::mixtral:
      config.norm_topk_prob = true;
      break;
    case ModelFamily::granitemoe:
      config.router_softmax = RouterSoftmax::top_k;
      break;
  }
  read_layer_kinds(reader, family, config);
}

void read_attention(const ConfigReader& reader, const FamilyDefaults& family, ModelConfig& config) {
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const bool attention_bias = reader.flag_or("attention_bias", false);
  switch (family.family) {
    case ModelFamily::qwen3_moe:
      config.qkv_bias = config.o_bias = attention_bias;
      config.qk_norm = QkNorm::per_head;
      break;
    case ModelFamily::qwen2_moe:
      config.qkv_bias = reader.flag_or("qkv_bias", true);
      break;
    case ModelFamily::olmoe:
      config.qkv_bias = config.o_bias = attention_bias;
      config.qk_norm = QkNorm::whole;
      config.clip_qkv = reader.find_positive("clip_qkv");
      break;
    case ModelFamily::mixtral:
      break;
    case ModelFamily::granitemoe:
      config.qkv_bias = config.o_bias = attention_bias;
      config.attention_scale = reader.positive_or("attention_multiplier", 1.0);
      config.embedding_multiplier = reader.positive_or("embedding_multiplier", 1.0);
      config.residual_multiplier = reader.positive_or("residual_multiplier", 1.0);
      config.logits_scaling = reader.positive_or("logits_scaling", 1.0);
      break;
  }
}

/// The window of every layer that has one, 0 for none.
std::int64_t read_window(const ConfigReader& reader, ModelFamily family) {
  switch (family) {
    case ModelFamily::qwen3_moe:
    case ModelFamily::qwen2_moe:
      if (!reader.flag_or("use_sliding_window", false) || reader.is_null("sliding_window"))
        return 0;
      return reader.int_or("sliding_window", 4096, kWindow);
    case ModelFamily::mixtral:
      return reader.int_or("sliding_window", 0, kWindow);
    default:
      return 0;
  }
}

/// Transformers 4.57 masks all layers alike on the CPU (max_window_layers concerns flash attention
/// alone); transformers 5 writes the choice of each qwen2_moe layer into `layer_types`.
void read_sliding_window(const ConfigReader& reader, const FamilyDefaults& family,
                         ModelConfig& config) {
  config.sliding_window.assign(static_cast<std::size_t>(config.num_layers),
                               read_window(reader, family.family));
  const auto types = reader.find("layer_types");
  if (!types || family.family != ModelFamily::qwen2_moe) return;
  require(types->size() == config.num_layers, ErrorKind::file,
          "{}: expected {} elements, one a layer, found {}", types->where(), config.num_layers,
          types->size());
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const Json type = types->at(layer);
    const bool full = type.as_string_view() == "full_attention";
    require(full || type.as_string_view() == "sliding_attention", ErrorKind::file,
            "{}: expected \"full_attention\" or \"sliding_attention\", found \"{}\"", type.where(),
            type.as_string_view());
    if (full) config.sliding_window[static_cast<std::size_t>(layer)] = 0;
  }
}

/// One id or a list of them. Some files say -1 for none.
std::vector<std::int64_t> read_token_ids(const ConfigReader& reader, std::string_view key) {
  std::vector<std::int64_t> ids;
  const auto value = reader.find(key);
  if (value && value->is_array()) {
    for (std::int64_t i = 0; i < value->size(); ++i) ids.push_back(value->at(i).as_int());
  } else if (const auto id = reader.find_int(key, kTokenId)) {
    ids.push_back(*id);
  }
  std::erase_if(ids, [](std::int64_t id) { return id < 0; });
  return ids;
}

/// generation_config.json, then config.json, then the family's default.
std::vector<std::int64_t> find_token_ids(const ConfigReader& reader,
                                         const std::optional<Json>& generation,
                                         std::string_view key,
                                         std::optional<std::int64_t> otherwise) {
  if (generation && generation->contains(key)) {
    return read_token_ids(ConfigReader(*generation), key);
  }
  if (reader.find(key)) return read_token_ids(reader, key);
  if (!otherwise || reader.is_null(key)) return {};
  return {*otherwise};
}

}  // namespace

std::string_view family_name(ModelFamily family) noexcept {
  return kFamilies[static_cast<std::size_t>(family)].name;
}

std::int64_t ModelConfig::num_moe_layers() const noexcept {
  return std::count(is_moe.begin(), is_moe.end(), true);
}

ModelConfig parse_model_config(const Json& config, const std::optional<Json>& generation) {
  const ConfigReader reader(config.find("text_config").value_or(config));
  const FamilyDefaults& family = find_family(reader);
  ModelConfig model;
  model.family = family.family;
  read_sizes(reader, family, model);
  read_attention(reader, family, model);
  read_sliding_window(reader, family, model);
  read_experts(reader, family, model);
  model.rope = read_rope_config(reader.json(),
                                {family.rope_theta, model.head_dim, model.max_position_embeddings});
  const auto bos = find_token_ids(reader, generation, "bos_token_id", family.bos_token_id);
  if (!bos.empty()) model.bos_token_id = bos.front();
  model.eos_token_ids = find_token_ids(reader, generation, "eos_token_id", family.eos_token_id);
  return model;
}

ModelConfig read_model_config(const std::string& directory) {
  const std::filesystem::path folder(directory);
  std::error_code error;
  std::optional<Json> generation;
  if (std::filesystem::exists(folder / "generation_config.json", error)) {
    generation = Json::read_file((folder / "generation_config.json").string());
  }
  return parse_model_config(Json::read_file((folder / "config.json").string()), generation);
}

}  // namespace moesaic
