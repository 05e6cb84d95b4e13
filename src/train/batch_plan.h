#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

/// Which samples of a step a rank runs, cut into micro-batches of whole samples. All ranks have as
/// many micro-batches, the last ones perhaps empty.
struct RankBatches {
  std::vector<std::vector<std::int64_t>> micro_batches;  // places in the step
};

/// Shares the samples of a step among `ranks`, the longest first to the rank with the fewest
/// tokens. A micro-batch has at most `most_tokens` tokens, or one sample. `lengths`: tokens of each
/// sample. Every rank gets the same plan from the same arguments.
[[nodiscard]] std::vector<RankBatches> plan_batches(std::span<const std::int64_t> lengths,
                                                    int ranks, std::int64_t most_tokens);

}  // namespace moesaic
