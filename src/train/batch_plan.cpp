#include "src/train/batch_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace moesaic {
namespace {

/// Takes the rank's samples in their order: as many a micro-batch as fit.
std::vector<std::vector<std::int64_t>> cut(std::span<const std::int64_t> samples,
                                           std::span<const std::int64_t> lengths,
                                           std::int64_t most_tokens) {
  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t room = 0;
  for (const std::int64_t sample : samples) {
    const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
    if (length > room) {
      batches.emplace_back();
      room = std::max(most_tokens, length);
    }
    batches.back().push_back(sample);
    room -= length;
  }
  return batches;
}

}  // namespace

std::vector<RankBatches> plan_batches(std::span<const std::int64_t> lengths, int ranks,
                                      std::int64_t most_tokens) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int64_t sample) {
    return lengths[static_cast<std::size_t>(sample)];
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, length);

  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::vector<std::int64_t>> samples(count);
  std::vector<std::int64_t> tokens(count, 0);
  for (const std::int64_t sample : order) {
    const auto rank = static_cast<std::size_t>(std::ranges::min_element(tokens) - tokens.begin());
    samples[rank].push_back(sample);
    tokens[rank] += length(sample);
  }

  std::vector<RankBatches> plan(count);
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < count; ++rank) {
    plan[rank].micro_batches = cut(samples[rank], lengths, most_tokens);
    most = std::max(most, plan[rank].micro_batches.size());
  }
  for (RankBatches& batches : plan) batches.micro_batches.resize(most);
  return plan;
}

}  // namespace moesaic
