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
/// four are named; for an expression without a match, with names that there are; for what is no
/// expression, and for one that takes too many steps to match.
[[nodiscard]] std::vector<AdapterSite> choose_sites(std::span<const AdapterSite> sites,
                                                    const std::string& targets);

}  // namespace moesaic
