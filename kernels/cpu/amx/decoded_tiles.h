#pragma once

#include <algorithm>
#include <array>

#include "kernels/cpu/amx/weights_ahead.h"
#include "kernels/cpu/avx512/decoded.h"

// Products of weights that are decoded. Internal to each kernel.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// A Pair of WeightsAhead: part P of a step is that of panel P.
template <typename Decoder>
class DecodedPair {
 public:
  explicit DecodedPair(const TileArgs& args)
      : matrix_(args.matrix),
        first_panel_(args.first_panel),
        stride_(args.matrix->panel_stride()),
        decoders_(decoders(0, 1)) {}

  static std::int64_t ask_steps(std::int64_t steps) {
    return std::min(steps, kPrefetchBytes / Decoder::kStepBytes);
  }
  void enter(const Part& part) {
    decoders_ = decoders(part.panel, part.panels);
    step_ = part.first_step;
    panels_ = static_cast<int>(part.panels);
    asks_ = true;
    ahead_ = at(part, ask_steps(part.steps));
  }
  void ask_for(const Part& next) { ahead_ = at(next, 0); }
  void ask_for_nothing() { asks_ = false; }
  void stop() {
    panels_ = 0;
    asks_ = false;
  }

  template <int P>
  [[gnu::always_inline]] void make(std::byte* tiles) {
    Decoder& decoder = decoders_[P];
    if (asks_) {
      prefetch_lines(ahead_ + P * stride_, Decoder::kStepBytes / 64);
      prefetch_scales(decoder, step_, 2 * stride_);
    }
    if (P < panels_) store_step(decoder, step_, tiles + P * kTileBytes);
  }
  [[gnu::always_inline]] void end_step() {
    ahead_ += Decoder::kStepBytes;
    ++step_;
  }

 private:
  [[nodiscard]] std::array<Decoder, 2> decoders(std::int64_t panel, std::int64_t panels) const {
    const std::int64_t first = first_panel_ + panel;
    return {Decoder(*matrix_, first), Decoder(*matrix_, first + panels - 1)};
  }
  [[nodiscard]] const std::byte* at(const Part& part, std::int64_t step) const {
    return matrix_->panel(first_panel_ + part.panel) +
           (part.first_step + step) * Decoder::kStepBytes;
  }

  const PackedMatrix* matrix_;
  std::int64_t first_panel_;
  std::int64_t stride_;
  std::array<Decoder, 2> decoders_;
  std::int64_t step_ = 0;
  int panels_ = 0;
  bool asks_ = false;
  const std::byte* ahead_ = nullptr;  // of the first panel, what is asked for
};

template <typename Product, typename Finish, typename Decoder>
void run_decoded_tiles(const TileArgs& args, std::size_t row_bytes) {
  run_tiles_ahead<Product, Finish>(args, row_bytes, DecodedPair<Decoder>(args));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
