#include "launch/job/adapter_layout.h"

#include "base/error.h"

namespace moesaic {

AdapterLayout choose_adapter_layout(const Options& options, const ModelConfig& config,
                                    const AdapterFiles* lora) {
  switch (options.adapter_layout) {
    case AdapterLayoutChoice::transformers4:
      require(config.in_transformers4, ErrorKind::usage,
              "--adapter-layout transformers4: family {} is in transformers 5 alone, where PEFT "
              "takes the layout transformers5",
              config.family);
      return AdapterLayout::transformers4;
    case AdapterLayoutChoice::transformers5:
      return AdapterLayout::transformers5;
    case AdapterLayoutChoice::automatic:
      break;
  }
  if (lora != nullptr) return lora->description().layout;
  return config.alike_in_transformers4 ? AdapterLayout::transformers4
                                       : AdapterLayout::transformers5;
}

}  // namespace moesaic
