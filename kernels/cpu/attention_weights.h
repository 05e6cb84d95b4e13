#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/attention_pass.h"

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// The greatest of a row's scores that it sees; -infinity if it sees none.
inline float greatest_score(const float* scores, KeyRange visible) {
  constexpr int kChains = 4;
  const Lanes lowest = broadcast(-HUGE_VALF);
  Lanes greatest[kChains] = {lowest, lowest, lowest, lowest};
  const auto masked = [&](std::int64_t key) {
    const LaneMask seen = lanes_between(visible.first - key, visible.end - key);
    greatest[0] = max(greatest[0], select(seen, load(scores + key), lowest));
  };
  std::int64_t key = visible.first / kLanes * kLanes;
  if (key < visible.first) {
    masked(key);
    key += kLanes;
  }
  for (; key + kChains * kLanes <= visible.end; key += kChains * kLanes) {
    MOESAIC_UNROLL
    for (int i = 0; i < kChains; ++i) {
      greatest[i] = max(greatest[i], load(scores + key + i * kLanes));
    }
  }
  for (; key < visible.end; key += kLanes) masked(key);
  return max_lanes(max(max(greatest[0], greatest[1]), max(greatest[2], greatest[3])));
}

/// Brings what was summed before to the row's new greatest score, and adds the strip's weights.
inline void add_total(Pass& pass, std::int64_t row, float max, Lanes total) {
  float* const totals = pass.totals[row];
  const float old_max = pass.max[row];
  if (max == old_max) {  // what was summed would be multiplied by 1
    store(totals, load(totals) + total);
    return;
  }
  pass.max[row] = max;
  const Lanes shrink = BinaryScores::weight(broadcast(old_max) - broadcast(max));
  store(totals, fma(load(totals), shrink, total));
  float* const sums = pass.sums + row * pass.stride;
  for (std::int64_t d = 0; d < pass.padded_dim; d += kLanes) {
    store(sums + d, load(sums + d) * shrink);
  }
}

/// Scores of a row become weights relative to `max`, 0 where hidden, over the strip's steps. The
/// sums of the rounded ones by pairs of neighbours.
template <typename Products>
inline Lanes weigh_keys(const Pass& pass, std::int64_t row, KeyRange steps, KeyRange seen,
                        float max) {
  const Lanes factor = broadcast(BinaryScores::factor(pass.args.scale));
  const Lanes greatest = broadcast(max);
  const float* const scores = pass.scores + row * kScoreStride;
  const auto weights = Products::weight_row(pass, row);
  const auto weight = [=](std::int64_t key) {
    return BinaryScores::weight(load(scores + key) * factor - greatest);
  };
  Lanes total = broadcast(0);
  if (seen.first <= steps.first && seen.end >= steps.end) {
    for (std::int64_t key = steps.first; key < steps.end; key += kStepDepth) {
      total = total + weights.put(key, weight(key), weight(key + kLanes));
    }
    return total;
  }
  const auto masked = [=](std::int64_t key) {
    return select(lanes_between(seen.first - key, seen.end - key), weight(key), broadcast(0));
  };
  for (std::int64_t key = steps.first; key < steps.end; key += kStepDepth) {
    total = total + weights.put(key, masked(key), masked(key + kLanes));
  }
  return total;
}

/// Scores become weights relative to the greatest. The step of the running softmax (Milakov and
/// Gimelshein 2018, arXiv:1805.02867).
template <typename Products>
inline void weigh_strip(Pass& pass, const KeyStrip& strip) {
  const float factor = BinaryScores::factor(pass.args.scale);
  const auto visible = [&](std::int64_t row) {
    return pass.visible(row, strip.first_key, kKeysPerStrip);
  };
  const auto greatest_of = [&](std::int64_t row) {
    return greatest_score(pass.scores + row * kScoreStride, visible(row)) * factor;
  };
  float greatest = greatest_of(0);
  for (std::int64_t row = 0; row < pass.args.num_rows; ++row) {
    const KeyRange seen = visible(row);
    const float max = pass.max[row] > greatest ? pass.max[row] : greatest;
    // Found while this row is weighed.
    if (row + 1 < pass.args.num_rows) greatest = greatest_of(row + 1);
    const Lanes total = weigh_keys<Products>(pass, row, strip.steps, seen, max);
    if (!seen.empty()) add_total(pass, row, max, total);
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
