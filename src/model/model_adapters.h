#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/lora/adapter_files.h"
#include "src/lora/adapter_set.h"
#include "src/model/model_names.h"
#include "src/model/model_weights.h"
#include "src/model/weight_plan.h"

namespace moesaic {

/// All matrices of a model that can have an adapter, layer by layer in the order of its weights.
[[nodiscard]] std::vector<AdapterSite> adapter_sites(const ModelNames& names);

/// Gives every weight its adapters: before a Transformer is made of `weights`, which then reads
/// what AdapterSet::pack brings. `experts`: those that the rank holds. `set` must outlive
/// `weights`. Throws Error{internal} if the set has an adapter that the rank has no matrix for.
void attach_adapters(const AdapterSet& set, const ModelNames& names, const HeldExperts& experts,
                     ModelWeights& weights);

/// A rank's part of an adapter of files.
struct AdapterLoad {
  const AdapterFiles& files;
  const ModelNames& names;
  HeldExperts experts;  ///< that the rank holds
  ThreadPool& pool;
};

/// Reads a rank's adapters, packs them in the precision of `weights` and attaches them. Throws as
/// AdapterFiles::read does.
[[nodiscard]] std::unique_ptr<AdapterSet> load_adapter(const AdapterLoad& load,
                                                       ModelWeights& weights);

}  // namespace moesaic
