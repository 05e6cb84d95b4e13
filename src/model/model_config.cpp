#include "src/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/small_file.h"
#include "src/model/family.h"

namespace moesaic {
namespace {

constexpr IntRange kLayers = {1, std::int64_t{1} << 14};
constexpr IntRange kVocabulary = {1, std::int64_t{1} << 28};
constexpr IntRange kTokenId = {INT64_MIN, INT32_MAX};
/// Of all layers: a few hundred bytes of names and shapes are kept of each.
constexpr std::int64_t kMostExperts = std::int64_t{1} << 20;

const Family& find_family(const ConfigReader& reader, std::span<const Family> families) {
  const Json type = reader.json().at("model_type");
  for (const Family& family : families) {
    if (family.name == type.as_string_view() ||
        std::ranges::find(family.aliases, type.as_string_view()) != family.aliases.end()) {
      return family;
    }
  }
  std::vector<std::string> supported;
  for (const Family& family : families) {
    supported.push_back(family.name);
    supported.insert(supported.end(), family.aliases.begin(), family.aliases.end());
  }
  fail(ErrorKind::file, "{}: model family {} is not supported; these are: {}", type.where(),
       json_quote(type.as_string_view()), fmt::join(supported, ", "));
}

/// Sizes that every saved config has are asked for, not guessed.
void read_sizes(const ConfigReader& reader, const Family& family, ModelConfig& config) {
  config.vocab_size = reader.required_int("vocab_size", kVocabulary);
  config.hidden_size = reader.required_int("hidden_size", kWidths);
  config.layers.resize(static_cast<std::size_t>(reader.required_int("num_hidden_layers", kLayers)));
  config.max_position_embeddings =
      reader.int_or("max_position_embeddings", family.max_position_embeddings, kPositions);
  config.rms_norm_eps = reader.positive_or("rms_norm_eps", family.rms_norm_eps);
  config.tie_word_embeddings = reader.flag_or("tie_word_embeddings", family.tie_word_embeddings);
  config.dtype = reader.string_or("dtype", reader.string_or("torch_dtype", ""));
  const std::string activation = reader.string_or("hidden_act", "silu");
  require(activation == "silu" || activation == "swish", ErrorKind::file,
          "{}: hidden_act: \"{}\" is not supported, only \"silu\" is", reader.json().where(),
          activation);
  require(reader.flag_or("is_causal", true), ErrorKind::file,
          "{}: is_causal: false is not supported: tokens see those before them",
          reader.json().where());
  if (!family.has_multipliers) return;
  const std::string positions = reader.string_or("position_embedding_type", "rope");
  require(positions == "rope", ErrorKind::file,
          "{}: position_embedding_type: \"{}\" is not supported, only \"rope\" is",
          reader.json().where(), positions);
  config.embedding_multiplier = reader.positive_or("embedding_multiplier", 1.0);
  config.residual_multiplier = reader.positive_or("residual_multiplier", 1.0);
  config.logits_scaling = reader.positive_or("logits_scaling", 1.0);
}

const MixerRow* find_row(const Family& family, std::string_view type) {
  const auto row = std::ranges::find(family.mixers, type, &MixerRow::layer_type);
  return row == family.mixers.end() ? nullptr : &*row;
}

/// The row of a layer that an element of `layer_types` names.
const MixerRow& named_row(const Family& family, const Json& type) {
  std::string known;
  for (const MixerRow& row : family.mixers) {
    known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", row.layer_type);
  }
  const MixerRow* const row = find_row(family, type.as_string_view());
  require(row != nullptr, ErrorKind::file, "{}: expected {}, found \"{}\"", type.where(), known,
          type.as_string_view());
  return *row;
}

void read_mixers(const ConfigReader& reader, const Family& family, ModelConfig& config) {
  const auto types = family.reads_layer_types ? reader.find("layer_types") : std::nullopt;
  require(!types || types->size() == config.num_layers(), ErrorKind::file,
          "{}: expected {} elements, one a layer, found {}", types ? types->where() : "",
          config.num_layers(), types ? types->size() : 0);
  std::map<const MixerRow*, std::shared_ptr<const MixerKind>> kinds;
  for (std::int64_t layer = 0; layer < config.num_layers(); ++layer) {
    const MixerRow* const row = types ? &named_row(family, types->at(layer))
                                      : find_row(family, family.usual_layer_type(reader, layer));
    require(row != nullptr, ErrorKind::internal, "family {} has no mixer for layer {}", family.name,
            layer);
    std::shared_ptr<const MixerKind>& kind = kinds[row];
    if (kind == nullptr) kind = row->read(reader, config);
    config.layers[static_cast<std::size_t>(layer)].mixer = kind;
  }
}

void read_feed_forward(const ConfigReader& reader, const Family& family, ModelConfig& config) {
  const std::shared_ptr<const FeedForwardKind> experts = family.experts(reader, config);
  config.num_experts = experts->sizes().experts;
  config.experts_per_token = experts->sizes().experts_per_token;
  require(config.num_layers() * config.num_experts <= kMostExperts, ErrorKind::file,
          "{}: {} layers of num_experts {} are more than {} experts in all", reader.json().where(),
          config.num_layers(), config.num_experts, kMostExperts);
  std::vector<bool> is_moe(config.layers.size(), true);
  if (family.moe_layers) is_moe = family.moe_layers(reader, config.num_layers());
  std::shared_ptr<const FeedForwardKind> plain;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (!is_moe[layer] && plain == nullptr) plain = family.plain_mlp(reader, config);
    config.layers[layer].feed_forward = is_moe[layer] ? experts : plain;
  }
}

/// One id or a list of them. Some files say -1 for none.
std::vector<std::int64_t> read_token_ids(const ConfigReader& reader, std::string_view key) {
  std::vector<std::int64_t> ids;
  const auto value = reader.find(key);
  if (value && value->is_array()) {
    for (std::int64_t i = 0; i < value->size(); ++i) {
      ids.push_back(value->at(i).as_int(kTokenId.min, kTokenId.max));
    }
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
  std::vector<std::int64_t> ids = read_token_ids(reader, key);  // to be right, even if not used
  if (generation && generation->contains(key)) {
    return read_token_ids(ConfigReader(*generation), key);
  }
  if (reader.find(key)) return ids;
  if (!otherwise || reader.is_null(key)) return {};
  return {*otherwise};
}

/// Whether version 4 of transformers surely computes the same. It takes no notice of
/// `rope_parameters`, which version 5 saves in the place of `rope_theta` and `rope_scaling` (even
/// if they are its defaults), of the factors of clamped gating, and in some families of
/// `mscale_all_dim` in scores.
bool is_alike_in_transformers4(const ConfigReader& reader, const Family& family) {
  if (!family.in_transformers4 || reader.find("rope_parameters")) return false;
  const auto is_absent_or = [&](std::string_view key, double value) {
    const auto factor = reader.find(key);
    return !factor || factor->as_double() == value;
  };
  if (!is_absent_or("swiglu_limit", 7.0) || !is_absent_or("swiglu_alpha", 1.702)) return false;
  if (family.scales_scores_in_transformers4) return true;
  const auto scaling = reader.find("rope_scaling");
  const auto mscale = scaling ? scaling->find("mscale_all_dim") : std::nullopt;
  return !mscale || mscale->as_double() == 0;
}

}  // namespace

std::int64_t ModelConfig::num_moe_layers() const {
  return std::ranges::count_if(
      layers, [](const LayerConfig& layer) { return layer.feed_forward->sizes().experts > 0; });
}

ModelConfig parse_model_config(const Json& config, const std::optional<Json>& generation,
                               std::span<const Family> families) {
  const ConfigReader reader(config.find("text_config").value_or(config));
  const Family& family = find_family(reader, families);
  ModelConfig model;
  model.family = family.name;
  model.peft5_takes_experts = family.peft5_takes_experts;
  model.in_transformers4 = family.in_transformers4;
  model.norm_offset = family.norm_offset;
  read_sizes(reader, family, model);
  read_mixers(reader, family, model);
  read_feed_forward(reader, family, model);
  model.alike_in_transformers4 = is_alike_in_transformers4(reader, family);
  const auto bos = find_token_ids(reader, generation, "bos_token_id", family.bos_token_id);
  if (!bos.empty()) model.bos_token_id = bos.front();
  model.eos_token_ids = find_token_ids(reader, generation, "eos_token_id", family.eos_token_id);
  return model;
}

ModelConfig parse_model_config(const Json& config, const std::optional<Json>& generation) {
  return parse_model_config(config, generation, known_families());
}

ModelConfig read_model_config(const std::string& directory, std::span<const Family> families) {
  const std::filesystem::path folder(directory);
  const std::string generation_path = (folder / "generation_config.json").string();
  std::optional<Json> generation;
  if (file_exists(generation_path)) generation = Json::read_file(generation_path, kMaxConfigBytes);
  return parse_model_config(Json::read_file((folder / "config.json").string(), kMaxConfigBytes),
                            generation, families);
}

ModelConfig read_model_config(const std::string& directory) {
  return read_model_config(directory, known_families());
}

}  // namespace moesaic
