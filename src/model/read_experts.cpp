#include "src/model/read_experts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr IntRange kExperts = {1, std::int64_t{1} << 16};
constexpr IntRange kShared = {0, std::int64_t{1} << 16};
constexpr IntRange kStep = {1, std::int64_t{1} << 40};
struct Range {
  double min;
  double max;
};

constexpr IntRange kLayerCount = {0, std::int64_t{1} << 40};

/// Experts go by several names; where a file has two, they must agree.
std::int64_t read_num_experts(const ConfigReader& reader) {
  constexpr std::array<std::string_view, 4> kNames = {"num_experts", "num_local_experts",
                                                      "n_routed_experts", "moe_num_experts"};
  std::string_view found;
  std::int64_t experts = 0;
  for (const std::string_view name : kNames) {
    const auto value = reader.find_int(name, kExperts);
    if (!value) continue;
    require(found.empty() || experts == *value, ErrorKind::file, "{}: {} is {}, but {} is {}",
            reader.json().where(), found, experts, name, *value);
    found = name;
    experts = *value;
  }
  require(!found.empty(), ErrorKind::file,
          "{}: field \"num_experts\" is missing, and \"num_local_experts\", "
          "\"n_routed_experts\" and \"moe_num_experts\" too",
          reader.json().where());
  return experts;
}

/// n_group, topk_group.
void read_groups(const ConfigReader& reader, const MoeConfig& config, RouterOptions& router) {
  const std::string where = reader.json().where();
  router.num_groups = reader.int_or("n_group", router.num_groups, {1, kMostGroups});
  router.kept_groups = reader.int_or("topk_group", router.kept_groups, {1, kMostGroups});
  require(config.experts % router.num_groups == 0, ErrorKind::file,
          "{}: {} experts cannot be in n_group {} equal groups", where, config.experts,
          router.num_groups);
  require(router.kept_groups <= router.num_groups, ErrorKind::file,
          "{}: topk_group {} is more than n_group {}", where, router.kept_groups,
          router.num_groups);
  const std::int64_t size = config.experts / router.num_groups;
  require(router.num_groups == 1 || router.group_score != GroupScore::two_largest || size >= 2,
          ErrorKind::file, "{}: n_group {} leaves one expert a group; groups count by two of them",
          where, router.num_groups);
  require(router.kept_groups * size >= router.topk, ErrorKind::file,
          "{}: num_experts_per_tok {} cannot be chosen from topk_group {} groups of {} experts",
          where, router.topk, router.kept_groups, size);
}

bool normalizes(const ConfigReader& reader, Normalize normalize) {
  if (normalize == Normalize::always || normalize == Normalize::never) {
    return normalize == Normalize::always;
  }
  constexpr std::string_view kField = "norm_topk_prob";  // null denies it
  const bool silent = normalize == Normalize::unless_denied && !reader.is_null(kField);
  return reader.flag_or(kField, silent);
}

/// `value`: all that the field may say; empty: anything.
void require_only(const ConfigReader& reader, std::string_view key, std::string_view value) {
  const std::string found = reader.string_or(key, value);
  require(value.empty() || found == value, ErrorKind::file,
          "{}: {} \"{}\" is not supported in this family, only \"{}\" is", reader.json().where(),
          key, found, value);
}

/// Whether the best of all experts are chosen, whatever is said of groups.
bool is_greedy(const ConfigReader& reader, const MoeTraits& traits) {
  constexpr std::string_view kKey = "topk_method";
  if (!traits.may_be_greedy) {
    require_only(reader, kKey, traits.topk_method);
    return false;
  }
  const std::string method = reader.string_or(kKey, "greedy");
  require(method == "greedy" || method == traits.topk_method, ErrorKind::file,
          "{}: {} \"{}\" is not supported in this family, only \"greedy\" and \"{}\" are",
          reader.json().where(), kKey, method, traits.topk_method);
  return method == "greedy";
}

/// Numbers that activations are multiplied by, or meet.
constexpr Range kFactors = {1e-3, 1e6};
/// A sum of probabilities of experts is larger than any of these, so that it decides nothing but
/// what is divided by where all are zero.
constexpr Range kLeastSums = {1e-30, 1e-6};

float read_float(const ConfigReader& reader, std::string_view key, double otherwise,
                 const Range& range) {
  const double value = reader.positive_or(key, otherwise);
  require(value >= range.min && value <= range.max, ErrorKind::file,
          "{}: {}: expected {} to {}, found {}", reader.json().where(), key, range.min, range.max,
          value);
  return static_cast<float>(value);
}

/// `GptOssExperts._apply_gate`; transformers 4.57 knows the defaults alone.
Gating read_clamped_gating(const ConfigReader& reader) {
  return {.limit = read_float(reader, "swiglu_limit", 7.0, kFactors),
          .alpha = read_float(reader, "swiglu_alpha", 1.702, kFactors),
          .offset = 1};
}

}  // namespace

ReadFeedForward read_experts(MoeTraits traits) {
  return [traits = std::move(traits)](const ConfigReader& reader, const ModelConfig& model) {
    MoeConfig config;
    config.hidden = model.hidden_size;
    config.usual_names = traits.usual_names;
    config.experts = read_num_experts(reader);
    config.expert_width = reader.required_int(traits.width_key, kWidths);
    config.choice_bias = traits.choice_bias;
    config.router_bias = traits.router_bias;
    config.expert_bias = traits.expert_bias;
    config.takes_turns = traits.takes_turns;
    config.lies_across = traits.lies_across;
    if (traits.is_clamped) config.gating = read_clamped_gating(reader);
    RouterOptions& router = config.router;
    router = traits.router;
    router.topk = reader.required_int(traits.topk_key, {1, std::min(config.experts, kMostChosen)});
    router.normalize =
        router.scores != ExpertScores::logits && normalizes(reader, traits.normalize);
    if (!traits.scale_key.empty()) {
      router.scale = read_float(reader, traits.scale_key, traits.usual_scale, kFactors);
    }
    if (!traits.least_sum_key.empty()) {
      router.least_sum = read_float(reader, traits.least_sum_key, 1e-12, kLeastSums);
    }
    require(traits.mlp_bias_key.empty() || !reader.flag_or(traits.mlp_bias_key, false),
            ErrorKind::file, "{}: {}: true is not supported: MLPs would have biases",
            reader.json().where(), traits.mlp_bias_key);
    require_only(reader, "scoring_func", traits.scoring);
    const bool has_groups = traits.has_groups && !is_greedy(reader, traits);
    if (has_groups) read_groups(reader, config, router);
    if (traits.shared) traits.shared(reader, config);
    return std::make_shared<const MoeKind>(config);
  };
}

ReadFeedForward read_plain_mlp() {
  return [](const ConfigReader& reader, const ModelConfig& model) {
    return std::make_shared<const PlainMlpKind>(model.hidden_size,
                                                reader.required_int("intermediate_size", kWidths));
  };
}

ReadShared gated_shared_expert(std::int64_t otherwise) {
  return [otherwise](const ConfigReader& reader, MoeConfig& config) {
    config.shared_width = reader.int_or("shared_expert_intermediate_size", otherwise, kWidths);
    config.gates_shared = true;
  };
}

ReadShared shared_experts(std::string count_key, std::int64_t otherwise) {
  return [key = std::move(count_key), otherwise](const ConfigReader& reader, MoeConfig& config) {
    const std::int64_t count = reader.int_or(key, otherwise, kShared);
    require(count * config.expert_width <= kWidths.max, ErrorKind::file,
            "{}: {} {} of width {} are too many", reader.json().where(), key, count,
            config.expert_width);
    config.shared_width = count * config.expert_width;
  };
}

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

std::function<std::vector<bool>(const ConfigReader&, std::int64_t)> after_first_dense(
    std::int64_t otherwise) {
  return [otherwise](const ConfigReader& reader, std::int64_t num_layers) {
    std::vector<bool> moe;
    const std::int64_t freq = reader.int_or("moe_layer_freq", 1, kStep);
    require(freq == 1, ErrorKind::file, "{}: moe_layer_freq {} is not supported, only 1 is",
            reader.json().where(), freq);
    const auto types = reader.find("mlp_layer_types");
    const std::int64_t dense = reader.int_or("first_k_dense_replace", otherwise, kLayerCount);
    require(!types || types->size() == num_layers, ErrorKind::file,
            "{}: expected {} elements, one a layer, found {}", types ? types->where() : "",
            num_layers, types ? types->size() : 0);
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      if (!types) {
        moe.push_back(layer >= dense);
        continue;
      }
      const Json type = types->at(layer);
      const bool is_sparse = type.as_string_view() == "sparse";
      require(is_sparse || type.as_string_view() == "dense", ErrorKind::file,
              "{}: expected \"dense\" or \"sparse\", found \"{}\"", type.where(),
              type.as_string_view());
      moe.push_back(is_sparse);
    }
    return moe;
  };
}

std::vector<bool> layer_interval(const ConfigReader& reader, std::int64_t num_layers) {
  const std::int64_t interval = reader.int_or("moe_layer_interval", 1, kStep);
  const std::int64_t first = reader.int_or("moe_layer_start_index", 1, kLayerCount);
  const std::int64_t last = reader.int_or("moe_layer_end_index", -1, {-1, kLayerCount.max});
  std::vector<bool> moe;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    moe.push_back((layer + 1) % interval == 0 && layer >= first && (last < 0 || layer <= last));
  }
  return moe;
}

}  // namespace moesaic
