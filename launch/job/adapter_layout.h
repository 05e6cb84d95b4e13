#pragma once

#include "launch/options/options.h"
#include "src/lora/adapter_files.h"
#include "src/model/model_config.h"

namespace moesaic {

/// The layout in which an adapter of the model is written: that of --adapter-layout, else of
/// `lora`, else the one that PEFT loads where transformers computes what is computed here:
/// transformers5 if version 4 lacks the family or reads the model otherwise. Throws Error{usage}
/// for --adapter-layout transformers4 and a family that is in transformers 5 alone.
[[nodiscard]] AdapterLayout choose_adapter_layout(const Options& options, const ModelConfig& config,
                                                  const AdapterFiles* lora);

}  // namespace moesaic
