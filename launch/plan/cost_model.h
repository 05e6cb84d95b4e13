#pragma once

#include "launch/job/session.h"
#include "launch/shapes/named_shapes.h"
#include "src/parallel/step_work.h"

namespace moesaic {

/// The model's weights by what rows meet them, in the formats in which they will be stored, and
/// its rows as they will travel. Reads its headers alone. Throws as ModelLoader does.
[[nodiscard]] CostModel make_cost_model(const OpenModel& model, const LoadOptions& load,
                                        const MoeOptions& moe, Int4Activations int4_activations);

/// The same of one layer with experts of this layout, and nothing besides. `precision`: of its
/// rows.
[[nodiscard]] CostModel make_cost_model(const LayerShape& shape, const Layout& layout,
                                        Precision precision);

/// A pass over tokens at positions [first, first + tokens) of each of `sequences`.
struct PassTokens {
  std::int64_t sequences = 1;
  std::int64_t first = 0;
  std::int64_t tokens = 1;
  std::int64_t at_once = 1;  // of a sequence's tokens
};
/// What its attention takes, all layers: CostStep's attention_flops, also for keys that kernels
/// multiply and then leave out, and cache_bytes read if every token has a pass of its own.
[[nodiscard]] MixerWork pass_work(const ModelConfig& config, Precision precision,
                                  const PassTokens& pass);

}  // namespace moesaic
