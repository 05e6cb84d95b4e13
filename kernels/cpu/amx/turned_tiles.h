#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx/pack_tiles.h"
#include "kernels/cpu/amx/weights_ahead.h"
#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/decoders/int4.h"
#include "kernels/cpu/avx512/turn_lines.h"

// Products by the columns of a matrix, whose panels are turned on the way
// (GemmKernel::turned_tile). Internal to each kernel.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Steps of a pair by which codes are asked for before they are turned: those are turned
/// kAheadSteps before they are multiplied already.
constexpr std::int64_t kAskSteps = 2;

// Where the bf16 lines of one step of a panel are: in `scratch` [kTileBytes] or where they lie.

struct RawLines {
  static constexpr std::int64_t kStepBytes = kTileBytes;
  static const std::byte* of(const StepRange& at, std::byte* /*scratch*/) {
    return at.matrix->panel(at.panel) + at.first * kStepBytes;
  }
};

template <typename Decoder>
struct DecodedLines {
  static constexpr std::int64_t kStepBytes = Decoder::kStepBytes;
  [[gnu::always_inline]] static const std::byte* of(const StepRange& at, std::byte* scratch) {
    Decoder decoder(*at.matrix, at.panel);
    prefetch_scales(decoder, at.first, kAskSteps * 2 * at.matrix->panel_stride());
    store_step(decoder, at.first, scratch);
    return scratch;
  }
};

/// Half a tile of int8.
struct Int8Lines {
  static constexpr std::int64_t kStepBytes = kTileBytes / 2;
  [[gnu::always_inline]] static const std::byte* of(const StepRange& at, std::byte* scratch) {
    const std::byte* const codes = at.matrix->panel(at.panel) + at.first * kStepBytes;
    for (std::int64_t line = 0; line < 8; ++line) {
      widen_line(_mm512_load_si512(codes + line * 64), scratch + line * 128);
    }
    return scratch;
  }
};

struct Int4Lines {
  static constexpr std::int64_t kStepBytes = Int4Decoder::kStepBytes / 2;
  [[gnu::always_inline]] static const std::byte* of(const StepRange& at, std::byte* scratch) {
    const int half = static_cast<int>(at.first % 2);
    const auto store = [=](int line, __m512i codes) __attribute__((always_inline)) {
      widen_line(codes, scratch + (line - 8 * half) * 128);
    };
    Int4Decoder(*at.matrix, at.panel).half_step(at.first / 2, half, store);
    return scratch;
  }
};

/// A Pair of WeightsAhead, panels of the transposed matrix: 32 of its rows, which are columns of W,
/// by 32 of W's rows a step. Part P of a step comes from one panel of W.
template <typename Lines>
class TurnedPair {
 public:
  explicit TurnedPair(const TurnedSteps& source)
      : source_(source), stride_(source.matrix->panel_stride()) {}

  static std::int64_t ask_steps(std::int64_t steps) { return std::min(steps, kAskSteps); }
  void enter(const Part& part) {
    at_ = {source_.matrix, 2 * part.first_step, source_.first + part.panel / 2, 1};
    panels_left_ = source_.matrix->num_panels() - at_.panel;
    ahead_ = start(part) + ask_steps(part.steps) * 2 * stride_;
  }
  void ask_for(const Part& next) { ahead_ = start(next); }
  static void ask_for_nothing() {}
  void stop() { panels_left_ = 0; }

  template <int P>
  [[gnu::always_inline]] void make(std::byte* tiles) {
    constexpr std::size_t kPart = P * kTileBytes / 2;
    if (P < panels_left_) {
      alignas(64) std::byte scratch[kTileBytes];
      prefetch_lines(ahead_ + P * stride_, Lines::kStepBytes / 64);
      const StepRange at{at_.matrix, at_.panel + P, at_.first, 1};
      turn_step(Lines::of(at, scratch), tiles + kPart, tiles + kTileBytes + kPart);
    } else if (P == 1 && panels_left_ == 1) {
      std::memset(tiles + kPart, 0, kTileBytes / 2);
      std::memset(tiles + kTileBytes + kPart, 0, kTileBytes / 2);
    }
  }
  [[gnu::always_inline]] void end_step() {
    at_.panel += 2;
    ahead_ += 2 * stride_;
    panels_left_ -= 2;
  }

 private:
  [[nodiscard]] const std::byte* start(const Part& part) const {
    return source_.matrix->panel(2 * part.first_step) +
           (source_.first + part.panel / 2) * Lines::kStepBytes;
  }

  TurnedSteps source_;
  std::int64_t stride_;
  StepRange at_{};                    // the first panel of a step
  std::int64_t panels_left_ = 0;      // that W has from there on
  const std::byte* ahead_ = nullptr;  // of the first panel, what is asked for
};

/// GemmKernel::turned_tile.
template <typename Lines>
void turned_tile(const TileArgs& args, const TurnedSteps& source) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  run_tiles_ahead<Bf16Product, NoFinish>(args, bf16_tile_row_bytes(args.matrix->depth),
                                         TurnedPair<Lines>(source));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
