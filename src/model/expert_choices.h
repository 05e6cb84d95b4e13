#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/model/model_config.h"
#include "src/model/model_files.h"
#include "src/model/precision.h"
#include "src/model/weight_layout.h"
#include "src/moe/moe_options.h"
#include "src/parallel/expert_record.h"

namespace moesaic {

/// How a model runs that is in memory one layer at a time.
struct LayerByLayer {
  Precision precision = Precision::bf16;
  WantedLayouts layouts;
  WireForm wire = WireForm::exact;  ///< what rows and results are rounded to, as if they travelled
  const Compute& compute;
  std::function<void(std::int64_t layers)> progress{};  ///< called with layers that are done
};

/// The experts that the model chooses for the tokens of `texts`, each of which is a sequence of its
/// own, one text after the other: as in a forward pass. Weights are read layer by layer and
/// dropped again, so that a model much larger than the machine's memory can be asked. By one
/// process. Throws Error{file} for weights that are missing, broken, or give values that are not
/// finite, Error{usage} for tokens outside the vocabulary.
[[nodiscard]] ExpertChoices expert_choices(const ModelFiles& files, const ModelConfig& config,
                                           std::span<const std::vector<std::int32_t>> texts,
                                           const LayerByLayer& how);

}  // namespace moesaic
