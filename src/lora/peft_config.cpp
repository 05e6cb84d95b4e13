#include "src/lora/peft_config.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "src/tokenizer/regex.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostRank = std::int64_t{1} << 16;

/// Fields that change what an adapter computes, and are not for us, unless they are null, false or
/// empty.
constexpr std::array<std::string_view, 14> kForeignFields = {"use_dora",
                                                             "modules_to_save",
                                                             "fan_in_fan_out",
                                                             "lora_bias",
                                                             "use_qalora",
                                                             "use_bdlora",
                                                             "layer_replication",
                                                             "trainable_token_indices",
                                                             "alora_invocation_tokens",
                                                             "arrow_config",
                                                             "kasa_config",
                                                             "monteclora_config",
                                                             "velora_config",
                                                             "target_modules_to_tie"};

/// Values of init_lora_weights with which PEFT leaves the base weights as they are; with the others
/// (pissa, olora, corda, loftq, lora_ga) the adapter is for a base that PEFT changes on loading.
constexpr std::array<std::string_view, 4> kPlainStarts = {"eva", "gaussian", "mica", "orthogonal"};

bool is_off(const Json& value) {
  if (value.is_bool()) return !value.as_bool();
  return (value.is_array() || value.is_object()) && value.size() == 0;
}

/// Whether `name` is `end`, or ends with it behind a point.
bool has_ending(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
}

std::vector<std::string> string_list(const Json& json) {
  std::vector<std::string> list;
  json.for_each([&](const std::string&, const Json& value) { list.push_back(value.as_string()); });
  return list;
}

/// Throws unless the adapter is for the base weights of the checkpoint.
void require_unchanged_base(const Json& json) {
  const auto start = json.find("init_lora_weights");
  if (!start || start->is_bool()) return;
  std::string name = start->as_string();
  std::ranges::transform(name, name.begin(), [](char c) {  // PEFT's "Gaussian" is "gaussian"
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  require(std::ranges::find(kPlainStarts, name) != kPlainStarts.end(), ErrorKind::file,
          "{} is \"{}\"; an adapter whose base weights are not those of the checkpoint is not read "
          "(PEFT's path_initial_model_for_weight_conversion saves one that is for the checkpoint)",
          start->where(), start->as_string());
}

double positive(const Json& json) {
  const double value = json.as_double();
  // Scales are float.
  require(value > 0 && value <= std::numeric_limits<float>::max(), ErrorKind::file,
          "{} is {}, not a number from above 0 to {}", json.where(), value,
          std::numeric_limits<float>::max());
  return value;
}

std::int64_t rank_of(const Json& json) {
  const std::int64_t rank = json.as_int();
  require(rank >= 1 && rank <= kMostRank, ErrorKind::file, "{} is {}, not from 1 to {}",
          json.where(), rank, kMostRank);
  return rank;
}

}  // namespace

/// A list of endings of names, or an expression for whole names.
struct PeftConfig::Names {
  std::vector<std::string> endings;
  std::optional<Regex> whole;
  bool all_linear = false;

  explicit Names(const Json& json) {
    if (!json.is_string()) {
      endings = string_list(json);
    } else if (json.as_string() == "all-linear") {
      all_linear = true;
    } else {
      whole = Regex::compile_whole(json.as_string(), json.where());
    }
  }

  [[nodiscard]] bool hit(std::string_view name) const {
    if (all_linear) return true;
    if (whole) return whole->has_match(name);
    return std::ranges::any_of(endings,
                               [&](const std::string& end) { return has_ending(name, end); });
  }
};

/// A key of rank_pattern or alpha_pattern: an expression for the end of a name.
class PeftConfig::Pattern {
 public:
  Pattern(const std::string& key, const std::string& where)
      : whole_(Regex::compile_whole("(?:.*\\.)?(?:" + key + ")", where)) {}

  [[nodiscard]] bool hits(std::string_view name) const { return whole_.has_match(name); }

 private:
  Regex whole_;
};

PeftConfig PeftConfig::parse(const Json& json) {
  PeftConfig config;
  config.refuse_other_methods(json);
  config.rank_ = rank_of(json.at("r"));
  config.alpha_ = positive(json.at("lora_alpha"));
  const auto flag = json.find("use_rslora");
  config.rank_stabilised_ = flag && flag->as_bool();
  if (const auto dropout = json.find("lora_dropout")) config.dropout_ = dropout->as_double();
  if (const auto model = json.find("base_model_name_or_path"))
    config.base_model_ = model->as_string();
  if (const auto ranks = json.find("rank_pattern")) {
    ranks->for_each([&](const std::string& key, const Json& value) {
      config.ranks_.emplace_back(std::make_shared<Pattern>(key, value.where()), rank_of(value));
    });
  }
  if (const auto alphas = json.find("alpha_pattern")) {
    alphas->for_each([&](const std::string& key, const Json& value) {
      config.alphas_.emplace_back(std::make_shared<Pattern>(key, value.where()), positive(value));
    });
  }
  config.read_targets(json);
  return config;
}

void PeftConfig::refuse_other_methods(const Json& json) const {
  const Json type = json.at("peft_type");
  require(type.as_string() == "LORA", ErrorKind::file, "{} is \"{}\"; only LORA is read",
          type.where(), type.as_string());
  if (const auto bias = json.find("bias")) {
    require(bias->as_string() == "none", ErrorKind::file, "{} is \"{}\"; biases are not read",
            bias->where(), bias->as_string());
  }
  for (const std::string_view field : kForeignFields) {
    const auto value = json.find(field);
    require(!value || is_off(*value), ErrorKind::file,
            "{} is set; such adapters are not read, plain LoRA is", value ? value->where() : "");
  }
  require_unchanged_base(json);
}

void PeftConfig::read_targets(const Json& json) {
  if (const auto modules = json.find("target_modules"))
    modules_ = std::make_shared<Names>(*modules);
  const auto excluded = json.find("exclude_modules");
  if (excluded && !is_off(*excluded)) excluded_ = std::make_shared<Names>(*excluded);
  if (const auto parameters = json.find("target_parameters")) {
    parameters_ = string_list(*parameters);
  }
  const auto layers = json.find("layers_to_transform");
  if (!layers || is_off(*layers)) return;
  layers_.emplace();
  if (layers->is_integer()) {
    layers_->push_back(layers->as_int());
  } else {
    layers->for_each(
        [&](const std::string&, const Json& layer) { layers_->push_back(layer.as_int()); });
  }
}

bool PeftConfig::hits_parameter(const std::string& name) const {
  return std::ranges::any_of(parameters_,
                             [&](const std::string& end) { return has_ending(name, end); });
}

std::string PeftConfig::hit_name(const AdapterSite& site, AdapterLayout layout) const {
  const PeftTarget target = peft_target(site, layout);
  const std::string parameter = target.is_fused ? target.name : site.module + ".weight";
  if (hits_parameter(parameter)) return parameter;
  if (target.is_fused || !modules_ || !modules_->hit(site.module)) return "";
  if (excluded_ && excluded_->hit(site.module)) return "";
  const bool in_layer = !layers_ || std::ranges::find(*layers_, site.layer) != layers_->end();
  return in_layer ? site.module : "";
}

PeftConfig::Numbers PeftConfig::numbers(const std::string& name) const {
  Numbers numbers{rank_, alpha_};
  const auto hits = [&](const auto& entry) { return entry.first->hits(name); };
  if (const auto rank = std::ranges::find_if(ranks_, hits); rank != ranks_.end()) {
    numbers.rank = rank->second;
    numbers.has_own_rank = true;
  }
  if (const auto alpha = std::ranges::find_if(alphas_, hits); alpha != alphas_.end()) {
    numbers.alpha = alpha->second;
  }
  return numbers;
}

}  // namespace moesaic
