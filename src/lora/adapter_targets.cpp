#include "src/lora/adapter_targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "src/tokenizer/regex.h"

namespace moesaic {
namespace {

/// Which kinds are named, by AdapterKind.
using Kinds = std::array<bool, kAdapterKindNames.size()>;

/// Nothing if a word is no kind.
std::optional<Kinds> kinds_in(std::string_view text) {
  Kinds kinds{};
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto found = std::ranges::find(kAdapterKindNames, text.substr(0, comma));
    if (found == kAdapterKindNames.end()) return std::nullopt;
    kinds[static_cast<std::size_t>(found - kAdapterKindNames.begin())] = true;
    if (comma == text.size()) return kinds;
    text.remove_prefix(comma + 1);
  }
}

void require_kinds(std::span<const AdapterSite> sites, const Kinds& kinds) {
  if (std::ranges::all_of(kinds, [](bool named) { return named; })) return;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto is_kind = [&](const AdapterSite& site) {
      return static_cast<std::size_t>(site.kind) == i;
    };
    require(!kinds[i] || std::ranges::any_of(sites, is_kind), ErrorKind::usage,
            "LoRA target \"{}\": this model has no such matrices", kAdapterKindNames[i]);
  }
}

Regex whole_name(const std::string& expression) {
  try {
    return Regex::compile("\\A(?:" + expression + ")\\z", "LoRA targets");
  } catch (const Error& error) {
    fail(ErrorKind::usage, "\"{}\" is neither a list of {} nor a regular expression: {}",
         expression, fmt::join(kAdapterKindNames, ", "), error.what());
  }
}

/// PEFT's target_modules are ends of names, "q_proj,v_proj": what they are here. Empty if a word is
/// the end of no module's name.
std::string advice_on_ends(std::span<const AdapterSite> sites, std::string_view targets) {
  std::string ends;
  for (std::string_view left = targets; !left.empty();) {
    const std::string_view word = left.substr(0, left.find(','));
    left.remove_prefix(std::min(word.size() + 1, left.size()));
    const std::string end = fmt::format(".{}", word);
    const bool is_end = !word.empty() && std::ranges::any_of(sites, [&](const AdapterSite& site) {
      return site.module.ends_with(end);
    });
    if (!is_end) return "";
    ends += fmt::format("{}{}", ends.empty() ? "" : "|", word);
  }
  return ends.empty() ? "" : fmt::format("; '.*\\.({})' are all modules of such names", ends);
}

}  // namespace

std::vector<AdapterSite> choose_sites(std::span<const AdapterSite> sites,
                                      const std::string& targets) {
  std::vector<AdapterSite> chosen;
  if (const std::optional<Kinds> kinds = kinds_in(targets)) {
    require_kinds(sites, *kinds);
    std::ranges::copy_if(sites, std::back_inserter(chosen), [&](const AdapterSite& site) {
      return (*kinds)[static_cast<std::size_t>(site.kind)];
    });
    return chosen;
  }
  const Regex expression = whole_name(targets);
  std::ranges::copy_if(sites, std::back_inserter(chosen), [&](const AdapterSite& site) {
    return !expression.find_all(site.module).empty();
  });
  require(
      !chosen.empty(), ErrorKind::usage,
      "LoRA targets \"{}\": neither kinds ({}, with commas) nor a regular expression that a whole "
      "name of a module matches, such as {}{}",
      targets, fmt::join(kAdapterKindNames, ", "),
      sites.empty() ? "(this model has none)" : sites.front().module,
      advice_on_ends(sites, targets));
  return chosen;
}

}  // namespace moesaic
