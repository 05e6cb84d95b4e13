#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/lora/adapter_site.h"

namespace moesaic {

/// The sites that `targets` chooses, in their order: names of kinds with commas between them
/// ("attention,experts"), or a regular expression that whole module names must match
/// (AdapterSite::module), in the syntax of Python as far as that is PCRE2's.
///
/// Throws Error{usage} naming --lora-targets for a kind that the model does not have, unless all
/// four are named; for a list of kinds with another word, which it names; for an expression without
/// a match, with names that there are; for what is no expression, and for one that takes too many
/// steps to match.
[[nodiscard]] std::vector<AdapterSite> choose_sites(std::span<const AdapterSite> sites,
                                                    const std::string& targets);

/// One text for all that choose the same kinds, whatever their order and the blanks around them;
/// `targets` itself if it is no list of kinds.
[[nodiscard]] std::string canonical_targets(const std::string& targets);

}  // namespace moesaic
