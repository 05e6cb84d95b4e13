#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/amx/row_blocks.h"
#include "kernels/cpu/avx512/decoded.h"

// Products of weights that are decoded: three steps ahead of the tiles that they are multiplied
// with, between their products. A pair of panels is decoded once, while its first rows are
// multiplied. If there are no others, it goes through a ring that stays in the L1 cache; others
// find it in the L2 cache. Internal to each kernel.

namespace moesaic {
namespace {

/// Steps by which decoding is ahead, and the one that is being written.
constexpr std::int64_t kAheadSteps = 3;
constexpr std::int64_t kRingSteps = kAheadSteps + 1;
/// Most steps of a pair that other rows find decoded.
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

/// Weights for multiply_tiles: of a pair that has been decoded.
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

/// Weights for multiply_tiles: of all pairs in turn. Decoding does not stop between them.
template <typename Decoder>
class DecodedWeights {
 public:
  DecodedWeights(const TileArgs& args, const PartOrder& order, std::int64_t ring_bytes)
      : matrix_(args.matrix),
        first_panel_(args.first_panel),
        order_(order),
        part_(order.part()),
        cursor_(decoders(), args.scratch, ring_bytes) {
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

  /// Where decoding stands: a step of a pair.
  class Cursor {
   public:
    Cursor(const std::array<Decoder, 2>& decoders, std::byte* ring, std::int64_t bytes)
        : decoders_(decoders), read_(ring, bytes), write_(ring, bytes) {}

    /// Of the step that is to be multiplied.
    [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return read_.tile(p); }
    /// Decodes panel P.
    template <int P>
    [[gnu::always_inline]] void meanwhile() {
      Decoder& decoder = decoders_[P];
      if (asks_) {
        prefetch_lines(ahead_ + P * stride_, Decoder::kStepBytes / 64);
        prefetch_scales(decoder, step_, 2 * stride_);
      }
      if (P < panels_) store_step(decoder, step_, write_.tile(P));
    }
    [[gnu::always_inline]] void end_step() {
      read_.advance();
      write_.advance();
      ahead_ += Decoder::kStepBytes;
      ++step_;
    }

   private:
    friend DecodedWeights;
    std::array<Decoder, 2> decoders_;
    RingPlace read_;
    RingPlace write_;
    std::int64_t step_ = 0;
    int panels_ = 0;
    bool asks_ = false;
    const std::byte* ahead_ = nullptr;  // of the first panel, what is asked for
    std::int64_t stride_ = 0;
  };

  [[nodiscard]] const Cursor& cursor() const { return cursor_; }
  /// Where the pair that is to be multiplied starts.
  [[nodiscard]] const RingPlace& place() const { return cursor_.read_; }
  /// How many of `steps` steps there are until something changes but the cursor.
  [[nodiscard]] std::int64_t begin_run(std::int64_t steps) const {
    return std::min(steps, (cursor_.step_ < turn_ ? turn_ : end_) - cursor_.step_);
  }
  void end_run(const Cursor& cursor, std::int64_t run) {
    cursor_ = cursor;
    if (order_.at_end()) {  // nothing is decoded any more
      cursor_.step_ -= run;
      return;
    }
    if (cursor_.step_ == turn_) ask_for_next();
    if (cursor_.step_ < end_) return;
    order_.next_panels();
    enter_pair();
  }

 private:
  [[nodiscard]] std::int64_t panel() const { return first_panel_ + part_.panel; }
  [[nodiscard]] std::array<Decoder, 2> decoders() const {
    return {Decoder(*matrix_, panel()), Decoder(*matrix_, panel() + part_.panels - 1)};
  }

  void enter_pair() {
    if (order_.at_end()) {
      cursor_.panels_ = 0;
      cursor_.asks_ = false;
      end_ = turn_ = std::numeric_limits<std::int64_t>::max();
      return;
    }
    part_ = order_.part();
    cursor_.decoders_ = decoders();
    cursor_.step_ = part_.first_step;
    cursor_.panels_ = static_cast<int>(part_.panels);
    cursor_.stride_ = matrix_->panel_stride();
    cursor_.asks_ = true;
    const std::int64_t ahead = std::min(part_.steps, kPrefetchBytes / Decoder::kStepBytes);
    end_ = part_.first_step + part_.steps;
    turn_ = end_ - ahead;
    cursor_.ahead_ = matrix_->panel(panel()) + (part_.first_step + ahead) * Decoder::kStepBytes;
    if (cursor_.step_ == turn_) ask_for_next();
  }

  /// What is asked for from here on are the panels that come after these.
  void ask_for_next() {
    PartOrder next = order_;
    next.next_panels();
    if (next.at_end()) {
      cursor_.asks_ = false;
      return;
    }
    const Part part = next.part();
    cursor_.ahead_ =
        matrix_->panel(first_panel_ + part.panel) + part.first_step * Decoder::kStepBytes;
  }

  const PackedMatrix* matrix_;
  std::int64_t first_panel_;
  PartOrder order_;  // where decoding stands
  Part part_;
  std::int64_t turn_ = 0;  // the step from which on codes of the next panels are asked for
  std::int64_t end_ = 0;
  Cursor cursor_;
};

template <typename Product, typename Finish, typename Decoder>
void run_decoded_tiles(const TileArgs& args, std::size_t row_bytes) {
  TileRows<Product, Finish> product(args, row_bytes);
  PartOrder order(args, kPairSteps);
  const bool one_block = order.num_blocks() == 1;
  const std::int64_t ring_steps = one_block ? kRingSteps : order.range_steps() + kRingSteps;
  DecodedWeights<Decoder> weights(args, order, ring_steps * kPairStepBytes);
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
