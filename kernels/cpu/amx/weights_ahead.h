#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cpu/amx/row_blocks.h"

// Products of weights that are made from what is stored, a pair of panels at a time: three steps
// ahead of the tiles that they are multiplied with, between their products. A pair is made once,
// while its first rows are multiplied. If there are no others, it goes through a ring that stays in
// the L1 cache; others find it in the L2 cache. Internal to each kernel.

namespace moesaic {
namespace {

/// Steps by which weights are ahead, and the one that is being written.
constexpr std::int64_t kAheadSteps = 3;
constexpr std::int64_t kRingSteps = kAheadSteps + 1;
/// Most steps of a pair that other rows find made.
constexpr std::int64_t kPairSteps = 96;
constexpr std::int64_t kPairStepBytes = 2 * kTileBytes;
constexpr std::int64_t kPairRingBytes = (kPairSteps + kRingSteps) * kPairStepBytes;

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Where in a ring of steps of two panels something stands.
class RingPlace {
 public:
  RingPlace(std::byte* ring, std::int64_t bytes) : ring_(ring), bytes_(bytes) {}

  [[gnu::always_inline]] std::byte* tile(std::size_t p) const {
    return ring_ + at_ + p * kTileBytes;
  }
  [[gnu::always_inline]] void advance() {
    at_ += kPairStepBytes;
    if (at_ == bytes_) at_ = 0;
  }

 private:
  std::byte* ring_;
  std::int64_t bytes_;
  std::int64_t at_ = 0;
};

/// Weights for multiply_tiles: of a pair that has been made.
struct ReadyWeights {
  RingPlace place;

  [[nodiscard]] const ReadyWeights& cursor() const { return *this; }
  [[nodiscard]] static std::int64_t begin_run(std::int64_t steps) { return steps; }
  static void end_run(const ReadyWeights& /*cursor*/, std::int64_t /*run*/) {}

  [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return place.tile(p); }
  template <int P>
  [[gnu::always_inline]] void meanwhile() const {}
  [[gnu::always_inline]] void end_step() { place.advance(); }
};

/// Weights for multiply_tiles: of all pairs in turn. Making them does not stop between pairs.
///
/// A Pair makes the weights of a pair of panels step by step. make<P>(tiles) does one of two parts
/// of a step, whose tiles lie side by side; after both comes end_step(). enter(part) is where a
/// pair begins; from its last ask_steps(part.steps) steps on, what the next pair is made from is
/// to be asked for: ask_for(its part). stop(): nothing comes any more.
template <typename Pair>
class WeightsAhead {
 public:
  WeightsAhead(const Pair& pair, const PartOrder& order, std::byte* ring, std::int64_t ring_bytes)
      : order_(order), cursor_(pair, ring, ring_bytes) {
    enter_pair();
    const RingPlace start = cursor_.read_;
    for (std::int64_t left = kAheadSteps; left > 0;) {
      const std::int64_t run = begin_run(left);
      for (std::int64_t i = 0; i < run; ++i) {
        cursor_.template meanwhile<0>();
        cursor_.template meanwhile<1>();
        cursor_.end_step();
      }
      end_run(cursor_, run);
      left -= run;
    }
    cursor_.read_ = start;
  }

  /// The step that is multiplied, and the one that is made.
  class Cursor {
   public:
    Cursor(const Pair& pair, std::byte* ring, std::int64_t bytes)
        : pair_(pair), read_(ring, bytes), write_(ring, bytes) {}

    [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return read_.tile(p); }
    template <int P>
    [[gnu::always_inline]] void meanwhile() {
      pair_.template make<P>(write_.tile(0));
    }
    [[gnu::always_inline]] void end_step() {
      read_.advance();
      write_.advance();
      pair_.end_step();
    }

   private:
    friend WeightsAhead;
    Pair pair_;
    RingPlace read_;
    RingPlace write_;
  };

  [[nodiscard]] const Cursor& cursor() const { return cursor_; }
  /// Where the pair that is to be multiplied starts.
  [[nodiscard]] const RingPlace& place() const { return cursor_.read_; }
  /// How many of `steps` steps there are until something changes but the cursor.
  [[nodiscard]] std::int64_t begin_run(std::int64_t steps) const {
    return std::min(steps, step_ < turn_ ? turn_ - step_ : end_ - step_);
  }
  void end_run(const Cursor& cursor, std::int64_t run) {
    cursor_ = cursor;
    if (order_.at_end()) return;
    step_ += run;
    if (step_ == turn_) ask_for_next();
    if (step_ < end_) return;
    order_.next_panels();
    enter_pair();
  }

 private:
  void enter_pair() {
    step_ = 0;
    if (order_.at_end()) {
      cursor_.pair_.stop();
      end_ = turn_ = std::numeric_limits<std::int64_t>::max();
      return;
    }
    const Part part = order_.part();
    cursor_.pair_.enter(part);
    end_ = part.steps;
    turn_ = end_ - Pair::ask_steps(end_);
    if (turn_ == 0) ask_for_next();
  }

  void ask_for_next() {
    PartOrder next = order_;
    next.next_panels();
    next.at_end() ? cursor_.pair_.ask_for_nothing() : cursor_.pair_.ask_for(next.part());
  }

  PartOrder order_;  // what is made
  std::int64_t step_ = 0;
  std::int64_t turn_ = 0;  // the step from which on the next pair is asked for
  std::int64_t end_ = 0;
  Cursor cursor_;
};

/// `scratch` has kPairRingBytes.
template <typename Product, typename Finish, typename Pair>
void run_tiles_ahead(const TileArgs& args, std::size_t row_bytes, const Pair& first) {
  TileRows<Product, Finish> product(args, row_bytes);
  PartOrder order(args, kPairSteps);
  const bool one_block = order.num_blocks() == 1;
  const std::int64_t ring_steps = one_block ? kRingSteps : order.range_steps() + kRingSteps;
  WeightsAhead<Pair> weights(first, order, args.scratch, ring_steps * kPairStepBytes);
  RingPlace pair = weights.place();
  for (; !order.at_end(); order.advance()) {
    const Part part = order.part();
    if (part.first_rows) {
      pair = weights.place();
      product.run(part, weights);
    } else {
      ReadyWeights ready{pair};
      product.run(part, ready);
    }
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
