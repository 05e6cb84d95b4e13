#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/rounding.h"
#include "kernels/cpu/avx512/target.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Finished results on their way from TileArgs::out to TileArgs::streamed: those of a block, some
/// rows a call, while tiles multiply the next block. Until then they are in the L1 cache.
class ResultStream {
 public:
  explicit ResultStream(const TileArgs& args) : args_(args) {}
  ~ResultStream() {
    stream(rows_left_);
    if (args_.streamed.data != nullptr) _mm_sfence();  // whoever waits for this product sees them
  }
  ResultStream(const ResultStream&) = delete;
  ResultStream& operator=(const ResultStream&) = delete;

  /// Results of some rows and of one or two panels, which are to go in so many calls. What is left
  /// of those before goes at once.
  void begin(std::int64_t row, std::int64_t rows, std::int64_t panel, std::int64_t panels,
             std::int64_t calls) {
    if (args_.streamed.data == nullptr) return;
    stream(rows_left_);
    from_ = args_.out + row * args_.out_stride + panel * kPanelColumns;
    to_ = args_.streamed.data + row * args_.streamed.stride + panel * kPanelColumns;
    two_panels_ = panels == 2;
    rows_left_ = rows;
    rows_a_call_ = divide_up(rows, calls);
  }
  [[gnu::always_inline]] void operator()() {
    if (rows_left_ > 0) stream(std::min(rows_a_call_, rows_left_));
  }

 private:
  [[gnu::always_inline]] void stream(std::int64_t rows) {
    rows_left_ -= rows;
    for (; rows > 0; --rows, from_ += args_.out_stride, to_ += args_.streamed.stride) {
      _mm512_stream_ps(to_, _mm512_load_ps(from_));
      if (!two_panels_) continue;
      _mm512_stream_ps(to_ + kPanelColumns, _mm512_load_ps(from_ + kPanelColumns));
    }
  }

  const TileArgs& args_;
  const float* from_ = nullptr;
  float* to_ = nullptr;
  bool two_panels_ = false;
  std::int64_t rows_left_ = 0;
  std::int64_t rows_a_call_ = 0;
};

/// Weights for multiply_tiles, between whose products results of other tiles leave.
template <typename Weights>
class StreamingWeights {
 public:
  StreamingWeights(Weights& weights, ResultStream& results)
      : weights_(weights), results_(results) {}

  class Cursor {
   public:
    [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return weights_.tile(p); }
    template <int P>
    [[gnu::always_inline]] void meanwhile() {
      weights_.template meanwhile<P>();
      (*results_)();
    }
    [[gnu::always_inline]] void end_step() { weights_.end_step(); }

   private:
    friend StreamingWeights;
    using OfWeights = std::remove_cvref_t<decltype(std::declval<const Weights&>().cursor())>;
    Cursor(const OfWeights& weights, ResultStream& results)
        : weights_(weights), results_(&results) {}

    OfWeights weights_;
    ResultStream* results_;
  };

  [[nodiscard]] Cursor cursor() const { return Cursor(weights_.cursor(), results_); }
  [[nodiscard]] std::int64_t begin_run(std::int64_t steps) const {
    return weights_.begin_run(steps);
  }
  void end_run(const Cursor& cursor, std::int64_t run) { weights_.end_run(cursor.weights_, run); }

 private:
  Weights& weights_;
  ResultStream& results_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
