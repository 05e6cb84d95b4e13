#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "src/lora/adapted_mlp.h"
#include "src/moe/dispatch_plan.h"
#include "src/moe/routing.h"

namespace moesaic {

/// What an MoE layer keeps of a forward pass for its backward pass: the roads of the rows, the rows
/// that came from other ranks, gate and up of this rank's experts.
struct MoeStash {
  Routing routing;
  ExchangePlan plan;
  Buffer<float> router_scores;             // [tokens, experts], where Router::needs_scores()
  Buffer<std::byte> received;              // [received rows, bytes of a row's activations]
  MlpStash experts;                        // [outputs, width]
  std::vector<std::uint64_t> output_keys;  // [outputs] with dropout

  [[nodiscard]] std::int64_t bytes() const noexcept {
    return 4 * router_scores.size() + received.size() + experts.bytes() +
           8 * std::ssize(output_keys);
  }
};

}  // namespace moesaic
