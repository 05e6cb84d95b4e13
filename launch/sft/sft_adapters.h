#pragma once

#include <span>
#include <vector>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/lora/adapter_set.h"

namespace moesaic {

/// All matrices of the model that can have adapters. Collective.
[[nodiscard]] std::vector<AdapterSite> find_adapter_sites(const Runtime& runtime,
                                                          const OpenModel& model);

/// The adapters of the whole model that are trained, common ones first: those of --lora, else what
/// --lora-targets asks for. Throws AgreedError on all ranks for targets that the model does not
/// have, and for --lora-rank and the like that contradict --lora. Collective.
[[nodiscard]] std::vector<AdapterSpec> choose_adapters(const Runtime& runtime,
                                                       const OpenModel& model,
                                                       std::span<const AdapterSite> sites);
/// The same by one process that is no rank. Throws Error.
[[nodiscard]] std::vector<AdapterSpec> choose_adapters(const Command& command,
                                                       const OpenModel& model,
                                                       std::span<const AdapterSite> sites);

/// The share of their inputs that a step leaves out: that of --lora-dropout, or, where it is not
/// given, of the adapter `lora` that the run goes on from, which may be null. Throws Error{file}
/// where that is no share, and Error{usage} where one of the `adapters` takes none.
[[nodiscard]] double choose_dropout(const Command& command, const AdapterFiles* lora,
                                    std::span<const AdapterSpec> adapters);
/// The same, and AgreedError on all ranks. Collective.
[[nodiscard]] double choose_dropout(const Runtime& runtime, const AdapterFiles* lora,
                                    std::span<const AdapterSpec> adapters);

}  // namespace moesaic
