#include "src/model/layer_context.h"

#include "src/model/model_config.h"

namespace moesaic {

LayerContext::Setup LayerContext::Setup::of(const ModelConfig& config, Precision precision,
                                            const Compute& compute, const ExpertGroup& experts) {
  return {.compute = compute,
          .precision = precision,
          .hidden = config.hidden_size,
          .num_experts = config.num_experts,
          .experts_per_token = config.experts_per_token,
          .epsilon = static_cast<float>(config.rms_norm_eps),
          .residual_multiplier = static_cast<float>(config.residual_multiplier),
          .moe = experts.options,
          .device = experts.device};
}

}  // namespace moesaic
