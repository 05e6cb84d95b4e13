#include "src/lora/adapter_targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/split.h"
#include "src/tokenizer/regex.h"

namespace moesaic {
namespace {

/// Which kinds are named, by AdapterKind.
using Kinds = std::array<bool, kAdapterKindNames.size()>;

/// Nothing if a word is no kind.
std::optional<Kinds> kinds_in(std::string_view text) {
  Kinds kinds{};
  for (const std::string_view word : split_list(text)) {
    const auto found = std::ranges::find(kAdapterKindNames, word);
    if (found == kAdapterKindNames.end()) return std::nullopt;
    kinds[static_cast<std::size_t>(found - kAdapterKindNames.begin())] = true;
  }
  return kinds;
}

void require_kinds(std::span<const AdapterSite> sites, const Kinds& kinds) {
  if (std::ranges::all_of(kinds, [](bool named) { return named; })) return;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto is_kind = [&](const AdapterSite& site) {
      return static_cast<std::size_t>(site.kind) == i;
    };
    require(!kinds[i] || std::ranges::any_of(sites, is_kind), ErrorKind::usage,
            "--lora-targets: this model has no matrices of the kind \"{}\" that take adapters",
            kAdapterKindNames[i]);
  }
}

/// The sites whose whole names match.
std::vector<AdapterSite> matching_sites(std::span<const AdapterSite> sites,
                                        const std::string& expression) {
  std::vector<AdapterSite> matching;
  try {
    const Regex whole = Regex::compile_whole(expression, "PCRE2");
    std::ranges::copy_if(sites, std::back_inserter(matching),
                         [&](const AdapterSite& site) { return whole.has_match(site.module); });
  } catch (const Error& error) {  // which is of a file for what a pattern is in
    fail(ErrorKind::usage,
         "--lora-targets \"{}\": neither a list of {} nor a regular expression that can be used: "
         "{}",
         expression, fmt::join(kAdapterKindNames, ", "), error.what());
  }
  return matching;
}

/// A name for each kind and last word.
std::string examples_of(std::span<const AdapterSite> sites) {
  std::set<std::pair<AdapterKind, std::string_view>> seen;
  std::vector<std::string_view> names;
  for (const AdapterSite& site : sites) {
    const std::string_view name = site.module;
    if (seen.emplace(site.kind, name.substr(name.rfind('.') + 1)).second) names.push_back(name);
  }
  return names.empty() ? "(this model has none)" : fmt::format("{}", fmt::join(names, ", "));
}

/// PEFT's target_modules are ends of names, "q_proj,v_proj", also as JSON has them: what they are
/// here. Empty if a word is the end of no module's name.
std::string advice_on_ends(std::span<const AdapterSite> sites, std::string targets) {
  std::erase_if(targets,
                [](char c) { return std::string_view("[]\"").find(c) != std::string_view::npos; });
  std::string ends;
  for (const std::string_view word : split_list(targets)) {
    const std::string end = fmt::format(".{}", word);
    const bool is_end = !word.empty() && std::ranges::any_of(sites, [&](const AdapterSite& site) {
      return site.module.ends_with(end);
    });
    if (!is_end) return "";
    ends += fmt::format("{}{}", ends.empty() ? "" : "|", word);
  }
  return fmt::format("; '.*\\.({})' are all modules of such names", ends);
}

/// Throws for a list of kinds of which one is none.
void require_whole_list(std::span<const AdapterSite> sites, const std::string& targets) {
  const std::vector<std::string_view> words = split_list(targets);
  const auto is_kind = [](std::string_view word) {
    return std::ranges::find(kAdapterKindNames, word) != kAdapterKindNames.end();
  };
  if (std::ranges::none_of(words, is_kind)) return;
  const auto wrong = std::ranges::find_if_not(words, is_kind);
  if (wrong == words.end()) return;
  require(!wrong->empty(), ErrorKind::usage,
          "--lora-targets \"{}\": word {} of the list is empty, and no kind ({})", targets,
          wrong - words.begin() + 1, fmt::join(kAdapterKindNames, ", "));
  fail(ErrorKind::usage,
       "--lora-targets \"{}\": \"{}\" is no kind ({}), and a list has nothing else{}", targets,
       *wrong, fmt::join(kAdapterKindNames, ", "), advice_on_ends(sites, std::string(*wrong)));
}

/// Throws for the name of a file, where a user may have meant what it says.
void refuse_path(const std::string& targets) {
  require(!targets.ends_with(".json") && targets.find('/') == std::string::npos, ErrorKind::usage,
          "--lora-targets \"{}\": the name of a file, where kinds ({}) or a regular expression on "
          "the names of modules stand; --lora DIR goes on from an adapter, with its targets",
          targets, fmt::join(kAdapterKindNames, ", "));
}

}  // namespace

std::string canonical_targets(const std::string& targets) {
  const std::optional<Kinds> kinds = kinds_in(targets);
  if (!kinds) return targets;
  std::string text;
  for (std::size_t i = 0; i < kinds->size(); ++i) {
    if ((*kinds)[i]) text += fmt::format("{}{}", text.empty() ? "" : ",", kAdapterKindNames[i]);
  }
  return text;
}

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
  require_whole_list(sites, targets);
  chosen = matching_sites(sites, targets);
  if (chosen.empty()) refuse_path(targets);
  require(!chosen.empty(), ErrorKind::usage,
          "--lora-targets \"{}\": neither kinds ({}, with commas) nor a regular expression that a "
          "whole name of a module matches, such as {}{}",
          targets, fmt::join(kAdapterKindNames, ", "), examples_of(sites),
          advice_on_ends(sites, targets));
  return chosen;
}

}  // namespace moesaic
