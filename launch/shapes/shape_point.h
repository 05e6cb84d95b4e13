#pragma once

#include <cstdint>

#include "launch/job/memory_plan.h"
#include "launch/options/options.h"
#include "launch/shapes/layer_routing.h"

namespace moesaic {

/// What a point does with one layer in place of a model.
struct ShapePoint {
  LayerShape shape{};
  Layout layout{};               // of the experts
  std::int64_t pass_tokens = 1;  // of a rank in a pass, as many on every rank
  std::int64_t passes = 1;

  [[nodiscard]] std::int64_t rank_tokens() const noexcept { return pass_tokens * passes; }
};

/// Throws Error{usage} unless the options of a point name a model, or a shape, as the job needs it,
/// and nothing that the job has none of; what the environment alone says of that does not count.
void require_point(const Command& command);

/// What such a point does on so many ranks: as many tokens as sequences have, shared out evenly,
/// rounded up. Throws Error{usage}.
[[nodiscard]] ShapePoint shape_point(const Options& options, std::int64_t ranks);

/// What a rank with so many of its experts needs for it, without what the program has.
[[nodiscard]] RankMemory shape_memory(const ShapePoint& point, std::int64_t experts,
                                      const RankSharing& sharing);

/// What the tokens of a pass choose, those of all `ranks` that share the experts.
[[nodiscard]] LayerRouting shape_routing(const Options& options, const ShapePoint& point,
                                         std::int64_t ranks);

}  // namespace moesaic
