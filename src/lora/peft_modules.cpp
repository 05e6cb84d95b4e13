#include "src/lora/peft_modules.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace moesaic {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

std::int64_t fused_out(const AdapterSite& site) {
  return site.part == MlpPart::down ? site.out : 2 * site.out;
}

/// Of two parameters of one module, PEFT wraps gate_up_proj first: it is the inner one.
std::string module_key(const AdapterSite& site, AdapterLayout layout, bool has_both) {
  std::string key(kPrefix);
  if (!peft_target(site, layout).is_fused) return key + site.module;
  if (layout == AdapterLayout::transformers4 && !site.lies_across) return key + site.fused4;
  key += site.fused5;
  return has_both && site.part != MlpPart::down ? key + ".base_layer" : key;
}

/// fused5 of the layers that have adapters of gate or up, and adapters of down.
std::unordered_set<std::string_view> with_both(std::span<const AdapterSite> sites) {
  std::unordered_set<std::string_view> inner;
  std::unordered_set<std::string_view> both;
  for (const AdapterSite& site : sites) {
    if (site.part != MlpPart::down) inner.insert(site.fused5);
  }
  for (const AdapterSite& site : sites) {
    if (site.part == MlpPart::down && inner.contains(site.fused5)) both.insert(site.fused5);
  }
  return both;
}

}  // namespace

PeftTarget peft_target(const AdapterSite& site, AdapterLayout layout) {
  const bool has_fused5 = layout == AdapterLayout::transformers5 || site.lies_across;
  if (has_fused5 && !site.fused5.empty()) {
    return {true, true,
            site.fused5 + (site.part == MlpPart::down ? ".down_proj" : ".gate_up_proj")};
  }
  if (layout == AdapterLayout::transformers4 && !site.fused4.empty()) {
    return {true, true, site.fused4 + ".weight"};
  }
  if (layout == AdapterLayout::transformers5 && site.part) {
    return {false, true, site.module + ".weight"};
  }
  return {false, false, site.module};
}

std::vector<PeftModule> peft_modules(std::span<const AdapterSite> sites, AdapterLayout layout) {
  const std::unordered_set<std::string_view> both = with_both(sites);
  std::unordered_map<std::string, std::size_t> by_target;
  std::vector<PeftModule> modules;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const AdapterSite& site = sites[i];
    PeftTarget target = peft_target(site, layout);
    const auto [found, is_new] = by_target.emplace(target.name, modules.size());
    if (is_new) {
      modules.push_back({.key = module_key(site, layout, both.contains(site.fused5)),
                         .target = std::move(target.name),
                         .experts = target.is_fused ? site.num_experts : 0,
                         .in = site.in,
                         .out = target.is_fused ? fused_out(site) : site.out,
                         .takes_turns = site.takes_turns && site.part != MlpPart::down,
                         .is_swapped = site.lies_across && layout == AdapterLayout::transformers4,
                         .members = {}});
    }
    modules[found->second].members.push_back(
        {.adapter = static_cast<std::int64_t>(i),
         .expert = target.is_fused ? site.expert : 0,
         .part = target.is_fused ? site.part : std::nullopt,
         .first_out = target.is_fused && site.part == MlpPart::up ? site.out : 0});
  }
  return modules;
}

}  // namespace moesaic
