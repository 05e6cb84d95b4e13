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
  const float* const scores = pass.scores_of(row);
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
inline void weigh_strip(Pass& pass, const KeyStrip& strip, RowRange rows) {
  if (rows.empty()) return;
  const float factor = BinaryScores::factor(pass.args.scale);
  const auto visible = [&](std::int64_t row) {
    return pass.visible(row, strip.first_key, kKeysPerStrip);
  };
  const auto greatest_of = [&](std::int64_t row) {
    return greatest_score(pass.scores_of(row), visible(row)) * factor;
  };
  float greatest = greatest_of(rows.first);
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    const KeyRange seen = visible(row);
    const float max = pass.max[row] > greatest ? pass.max[row] : greatest;
    // Found while this row is weighed.
    if (row + 1 < rows.end) greatest = greatest_of(row + 1);
    const Lanes total = weigh_keys<Products>(pass, row, strip.steps, seen, max);
    if (!seen.empty()) add_total(pass, row, max, total);
  }
}

/// What a row of a strip is weighed relative to, and what its weights come to.
struct StripWeights {
  float max;
  Lanes total;
};

/// Weighs rows that see all steps of a strip, a step of 32 keys a call.
template <typename Products>
class StepWeigher {
 public:
  StepWeigher(const Pass& pass, const KeyStrip& strip, RowRange rows, StripWeights* weights)
      : pass_(pass),
        steps_(strip.steps),
        factor_(broadcast(BinaryScores::factor(pass.args.scale))),
        rows_(rows),
        weights_(weights) {
    if (!rows_.empty()) begin_row();
  }

  [[gnu::always_inline]] void operator()() {
    if (steps_left_ == 0) return;
    total_ = total_ + Products::weigh_step(scores_, factor_, max_);
    scores_ += kStepDepth;
    if (--steps_left_ > 0) return;
    weights_->total = total_;
    ++weights_;
    ++rows_.first;
    if (!rows_.empty()) begin_row();
  }
  /// All that is left.
  void finish() {
    while (steps_left_ > 0) (*this)();
  }

 private:
  [[gnu::always_inline]] void begin_row() {
    scores_ = pass_.scores_of(rows_.first) + steps_.first;
    steps_left_ = (steps_.end - steps_.first) / kStepDepth;
    max_ = broadcast(weights_->max);
    total_ = broadcast(0);
  }

  const Pass& pass_;
  KeyRange steps_;
  Lanes factor_;
  RowRange rows_;  // the one under way, and those to come
  StripWeights* weights_;
  // of the row under way:
  float* scores_ = nullptr;
  std::int64_t steps_left_ = 0;
  Lanes max_{};
  Lanes total_{};
};

/// weigh_strip() where rows see all steps, between the products of other rows:
/// multiply(StepWeigher&) may call it between any two.
template <typename Products, typename Multiply>
inline void weigh_between(Pass& pass, const KeyStrip& strip, RowRange rows, Multiply multiply) {
  const float factor = BinaryScores::factor(pass.args.scale);
  StripWeights weights[kAttentionRows];
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    const float greatest = greatest_score(pass.scores_of(row), strip.steps) * factor;
    weights[row - rows.first].max = pass.max[row] > greatest ? pass.max[row] : greatest;
  }
  StepWeigher<Products> weigher(pass, strip, rows, weights);
  multiply(weigher);
  weigher.finish();
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    add_total(pass, row, weights[row - rows.first].max, weights[row - rows.first].total);
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
