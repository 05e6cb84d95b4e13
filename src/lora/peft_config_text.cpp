#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <unordered_map>

#include "base/json.h"
#include "src/lora/peft_config.h"
#include "src/lora/written_modules.h"

namespace moesaic {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;  // names and JSON values

/// Calls for "proj", "self_attn.proj", ..., the whole name: endings that begin with a word.
template <typename Call>
void for_each_ending(const std::string& name, std::int64_t fewest_words, const Call& call) {
  std::size_t begin = name.size();
  for (std::int64_t words = 1; begin > 0; ++words) {
    const std::size_t point = name.rfind('.', begin - 1);
    const bool is_whole = point == std::string::npos;
    const std::string ending = name.substr(is_whole ? 0 : point + 1);
    begin = is_whole ? 0 : point;
    const bool is_number = std::isdigit(static_cast<unsigned char>(ending.front())) != 0;
    if (is_whole || (words >= fewest_words && !is_number)) {
      if (!call(ending)) return;
    }
  }
}

/// The shortest endings that all of `chosen` have, and nothing else of `all`.
std::set<std::string> endings_of(const std::vector<std::string>& chosen,
                                 const std::vector<std::string>& all, std::int64_t fewest_words) {
  struct Count {
    std::int64_t chosen = 0;
    std::int64_t all = 0;
  };
  std::unordered_map<std::string, Count> counts;
  for (const std::string& name : all) {
    for_each_ending(name, fewest_words, [&](const std::string& ending) {
      ++counts[ending].all;
      return true;
    });
  }
  for (const std::string& name : chosen) {
    for_each_ending(name, fewest_words, [&](const std::string& ending) {
      ++counts[ending].chosen;
      return true;
    });
  }
  std::set<std::string> endings;
  for (const std::string& name : chosen) {
    for_each_ending(name, fewest_words, [&](const std::string& ending) {
      const Count& count = counts[ending];
      if (count.chosen < count.all) return true;
      endings.insert(ending);
      return false;
    });
  }
  return endings;
}

/// Names of the targets of one sort that sites have in a layout, each once.
std::vector<std::string> target_names(std::span<const AdapterSite> sites, AdapterLayout layout,
                                      bool parameters) {
  std::set<std::string> names;
  for (const AdapterSite& site : sites) {
    PeftTarget target = peft_target(site, layout);
    if (target.is_parameter == parameters) names.insert(std::move(target.name));
  }
  return {names.begin(), names.end()};
}

template <typename Number>
Number most_common(const std::vector<Number>& numbers) {
  std::map<Number, std::int64_t> counts;
  for (const Number number : numbers) ++counts[number];
  return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })
      ->first;
}

std::string escaped(const std::string& name) {
  std::string expression;
  for (const char c : name) {
    if (c == '.') expression += '\\';
    expression += c;
  }
  return expression;
}

/// A rank_pattern or alpha_pattern: what is not `usual`. `number_of` gives a module's.
template <typename NumberOf>
std::string pattern(const std::vector<WrittenModule>& modules, double usual,
                    const NumberOf& number_of) {
  std::vector<std::string> all;
  std::map<double, std::vector<std::string>> by_number;
  for (const WrittenModule& written : modules) {
    all.push_back(written.module.target);
    const auto number = static_cast<double>(number_of(written));
    if (number != usual) by_number[number].push_back(written.module.target);
  }
  std::string text;
  for (const auto& [number, names] : by_number) {
    for (const std::string& ending : endings_of(names, all, 1)) {
      text +=
          fmt::format("{}{}: {}", text.empty() ? "" : ", ", json_quote(escaped(ending)), number);
    }
  }
  return "{" + text + "}";
}

/// What decides which modules have adapters, and of which size.
void add_targets(Fields& fields, const AdapterDescription& description,
                 std::span<const AdapterSpec> adapters, std::span<const AdapterSite> sites) {
  const std::vector<WrittenModule> modules =
      written_modules(adapters, description.layout, description.rank_stabilised);
  std::vector<std::int64_t> ranks;
  std::vector<double> alphas;
  std::vector<AdapterSite> chosen;
  for (const AdapterSpec& adapter : adapters) {
    ranks.push_back(adapter.rank);
    alphas.push_back(adapter.alpha);
    chosen.push_back(adapter.site);
  }
  const std::int64_t rank = most_common(ranks);
  const double alpha = most_common(alphas);
  const auto targets = [&](bool parameters) {
    return json_strings(endings_of(target_names(chosen, description.layout, parameters),
                                   target_names(sites, description.layout, parameters),
                                   parameters ? 2 : 1));
  };
  fields.insert(
      fields.end(),
      {{"r", fmt::format("{}", rank)},
       {"lora_alpha", fmt::format("{}", alpha)},
       {"rank_pattern",
        pattern(modules, static_cast<double>(rank), [](const WrittenModule& m) { return m.rank; })},
       {"alpha_pattern", pattern(modules, alpha, [](const WrittenModule& m) { return m.alpha; })},
       {"target_modules", targets(false)}});
  const std::string parameters = targets(true);
  if (parameters != "[]") fields.emplace_back("target_parameters", parameters);
}

/// Whether PEFT can fuse the experts' adapters of each layer that has any: down's alone or those of
/// all three matrices, of all experts, of one rank and alpha.
bool have_whole_experts(std::span<const AdapterSpec> adapters) {
  std::map<std::int64_t, std::map<MlpPart, std::int64_t>> counts;  // by layer
  const AdapterSpec* first = nullptr;
  for (const AdapterSpec& adapter : adapters) {
    const AdapterSite& site = adapter.site;
    if (site.kind != AdapterKind::experts) continue;
    if (first == nullptr) first = &adapter;
    if (adapter.rank != first->rank || adapter.alpha != first->alpha) return false;
    counts[site.layer].try_emplace(*site.part, site.num_experts).first->second -= 1;
  }
  return std::ranges::all_of(counts, [](const auto& layer) {
    const auto& missing = layer.second;  // adapters, by matrix
    return missing.contains(MlpPart::down) && missing.size() != 2 &&
           std::ranges::all_of(missing, [](const auto& part) { return part.second == 0; });
  });
}

}  // namespace

std::string peft_config_text(const AdapterDescription& description,
                             std::span<const AdapterSpec> adapters,
                             std::span<const AdapterSite> sites) {
  Fields fields = {{"peft_type", "\"LORA\""},
                   {"task_type", "\"CAUSAL_LM\""},
                   {"base_model_name_or_path", json_quote(description.base_model)},
                   {"inference_mode", "true"}};
  add_targets(fields, description, adapters, sites);
  // PEFT has no dropout for parameters, and refuses a file that says so.
  const bool has_parameters = fields.back().first == "target_parameters";
  fields.insert(fields.end(),
                {{"use_rslora", description.rank_stabilised ? "true" : "false"},
                 {"lora_dropout", json_float(has_parameters ? 0 : description.dropout)},
                 {"use_dora", "false"},
                 {"bias", "\"none\""},
                 {"fan_in_fan_out", "false"},
                 {"modules_to_save", "null"}});
  std::string text = "{\n";
  for (std::size_t i = 0; i < fields.size(); ++i) {
    text += fmt::format("  \"{}\": {}{}\n", fields[i].first, fields[i].second,
                        i + 1 < fields.size() ? "," : "");
  }
  return text + "}\n";
}

bool loads_on_both(const AdapterDescription& description, bool takes_experts,
                   std::span<const AdapterSpec> adapters) {
  const auto all_are = [&](AdapterKind one, AdapterKind other) {
    return std::ranges::all_of(adapters, [&](const AdapterSpec& adapter) {
      return adapter.site.kind == one || adapter.site.kind == other;
    });
  };
  if (all_are(AdapterKind::attention, AdapterKind::attention)) return true;
  return takes_experts && description.layout == AdapterLayout::transformers4 &&
         !description.rank_stabilised && all_are(AdapterKind::attention, AdapterKind::experts) &&
         have_whole_experts(adapters);
}

}  // namespace moesaic
