#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/parallel/expert_placement.h"

namespace moesaic {

/// Which experts each token of this rank's batch chose. Choice c = token * topk + k; a token's
/// choices stand in ascending expert id, the order in which their results are added.
struct Routing {
  std::int64_t num_tokens = 0;
  std::int64_t topk = 0;
  std::int64_t first_word = 0;    // where these choices begin among the words of a row on the wire
  std::vector<ExpertId> experts;  // [num_tokens * topk]
  std::vector<float> weights;     // [num_tokens * topk]

  [[nodiscard]] std::span<const ExpertId> experts_of(std::int64_t token) const {
    return std::span(experts).subspan(static_cast<std::size_t>(token * topk),
                                      static_cast<std::size_t>(topk));
  }
};

}  // namespace moesaic
