#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "src/model/batch.h"
#include "src/model/stash.h"
#include "src/moe/router_statistics.h"
#include "src/moe/routing.h"

namespace moesaic {

/// Whether layers keep what they compute for their backward pass, or their input alone and compute
/// the rest again. The bits are the same.
enum class Recompute { never, always };

/// What one layer keeps. Its memory serves the next pass too.
struct KeptLayer {
  bool is_whole = false;  // stashes are filled; else the layer has to compute again
  Buffer<float> input;    // [rows, hidden] residual stream before the mixer
  Buffer<float> middle;   // [rows, hidden] before the feed-forward part
  std::unique_ptr<Stash> mixer;
  std::unique_ptr<Stash> feed_forward;

  [[nodiscard]] std::int64_t bytes() const {
    return 4 * (input.size() + middle.size()) + (mixer ? mixer->bytes() : 0) +
           (feed_forward ? feed_forward->bytes() : 0);
  }
};

/// The experts of each layer's tokens, [layers][rows * topk]; empty without experts. A pass that is
/// given them takes them in the place of what its routers would choose; one that is given an empty
/// list fills it.
using ChosenExperts = std::vector<std::vector<ExpertId>>;

/// What a forward pass over whole sequences keeps for its backward pass: a value of its owner, who
/// may have any number of them. The sequences must live as long.
struct KeptPass {
  Batch batch;
  std::vector<SampleRange> samples;     // the rows of each sequence
  double dropout = 0;                   // its share, set before the forward pass
  std::vector<std::uint64_t> row_keys;  // [rows] and, with dropout, these
  ChosenExperts* choices = nullptr;     // set before the forward pass; outlives the backward pass
  std::vector<KeptLayer> layers;
  std::vector<RouterStatistics> routers;  // of each layer; without experts: none
  Buffer<float> out;                      // [rows, hidden] residual stream after the last layer

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t total = 4 * out.size() + 8 * std::ssize(row_keys);
    for (const KeptLayer& layer : layers) total += layer.bytes();
    return total;
  }
};

}  // namespace moesaic
