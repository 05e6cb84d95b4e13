#include "launch/bench/row_measure.h"

#include <algorithm>
#include <cstring>

#include "comm/thread_communicator.h"
#include "kernels/attention_blocks.h"
#include "kernels/transposed_gemm.h"
#include "launch/bench/bench_timing.h"
#include "launch/shapes/cold_weights.h"
#include "launch/shapes/layer_copies.h"
#include "src/generate/sampler.h"
#include "src/model/rotary.h"

namespace moesaic {
namespace {

/// Rows of as many numbers, in heads.
constexpr std::int64_t kWidth = 2048;
constexpr std::int64_t kHead = 128;
/// Some tokens, a short prompt, and a long one.
constexpr std::array<std::int64_t, 3> kRowsOfCalls = {8, 128, 1024};
constexpr std::int64_t kChoices = 8;     // whose results are added for a token
constexpr double kLeastSeconds = 1e-15;  // of a number: rates are above 0

/// Work on some rows. What a call needs a cache has if it is little, as the work before it has left
/// it there; else it is farther away: between two uses of a row a layer reads its weights.
class RowWork {
 public:
  /// `memory` is rotated over, by results of experts, which go past the caches, all of it.
  RowWork(const Compute& compute, std::span<std::byte> memory)
      : compute_(compute),
        memory_(reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)),
        weight_(kWidth, 1.0F) {
    const std::vector<float> row = normal_numbers(kWidth, 1, 2);
    compute.pool->for_each_row(
        num_rows(), [&](std::int64_t r) { std::ranges::copy(row, memory_.data() + r * kWidth); });
    constexpr std::int64_t kBlocks = kRowsOfCalls.back() / kKeysPerBlock * (kWidth / kHead);
    blocks_ = Buffer<std::byte>(kBlocks * block_bytes());
  }

  void run(RowOp op, std::int64_t rows) {
    choose_place(op, rows);
    if (op == RowOp::sum) return add_results(rows / kChoices);
    compute_.pool->for_each_row(rows, [&](std::int64_t row) { work(op, row); });
  }

 private:
  static std::int64_t block_bytes() {
    return std::max(key_block_bytes(AttentionKind::bf16, kHead),
                    value_block_bytes(AttentionKind::bf16, kHead));
  }
  [[nodiscard]] std::int64_t num_rows() const { return std::ssize(memory_) / kWidth; }

  /// The rows that are read, and as many behind them that are written.
  void choose_place(RowOp op, std::int64_t rows) {
    constexpr std::int64_t kBetweenUses = (std::int64_t{64} << 20) / (4 * kWidth);  // rows
    const std::int64_t all = rows <= kRowsOfCalls.front() ? 2 * rows
                             : op == RowOp::sum
                                 ? num_rows()
                                 : std::min(num_rows(), std::max(kBetweenUses, 2 * rows));
    first_ = first_ + 4 * rows <= all ? first_ + 2 * rows : 0;
    x_ = memory_.data() + first_ * kWidth;
    y_ = x_ + rows * kWidth;
  }

  void work(RowOp op, std::int64_t row) {
    float* const x = x_ + row * kWidth;
    float* const y = y_ + row * kWidth;
    const VectorKernels& vector = *compute_.vector;
    switch (op) {
      case RowOp::norm:
        return vector.rms_norm(x, weight_.data(), 1e-6F, kWidth, y);
      case RowOp::add:
        return vector.add_scaled(x, 1e-3F, kWidth, y);
      case RowOp::look:
        if (!vector.all_finite(x, kWidth)) y[0] = 1;
        return;
      case RowOp::round:
        return vector.to_bf16(x, kWidth, reinterpret_cast<BFloat16*>(y));
      case RowOp::head_norm:
      case RowOp::copy:
      case RowOp::rotate:
      case RowOp::store:
        for (std::int64_t head = 0; head < kWidth / kHead; ++head) work_on_head(op, row, head);
        return;
      default:
        return;
    }
  }

  void work_on_head(RowOp op, std::int64_t row, std::int64_t head) {
    float* const x = x_ + row * kWidth + head * kHead;
    if (op == RowOp::head_norm) {
      compute_.vector->rms_norm(x, weight_.data(), 1e-6F, kHead, x);
    } else if (op == RowOp::copy) {
      std::memcpy(y_ + row * kWidth + head * kHead, x, kHead * sizeof(float));
    } else if (op == RowOp::rotate) {
      compute_.vector->rotate({angles_.data(), angles_.data(), std::ssize(angles_)}, x);
    } else {
      const std::int64_t block = row / kKeysPerBlock * (kWidth / kHead) + head;
      const BlockSlot at{blocks_.data() + block * block_bytes(), row % kKeysPerBlock};
      (head % 2 == 0 ? store_key : store_value)(AttentionKind::bf16, *compute_.vector, x, kHead,
                                                at);
    }
  }

  /// Of as many tokens, whose results lie apart.
  void add_results(std::int64_t tokens) {
    compute_.pool->for_each_row(tokens, [&](std::int64_t token) {
      float* const sum = y_ + token * kWidth;
      std::fill_n(sum, kWidth, 0.0F);
      for (std::int64_t choice = 0; choice < kChoices; ++choice) {
        compute_.vector->add_scaled(x_ + (choice * tokens + token) * kWidth, 0.5F, kWidth, sum);
      }
    });
  }

  Compute compute_;
  std::span<float> memory_;
  std::int64_t first_ = 0;  // row of a call
  float* x_ = nullptr;
  float* y_ = nullptr;
  std::vector<float> weight_;  // of norms: what they write they may read again
  std::vector<float> angles_ = std::vector<float>(kHead / 2, 0.70710678F);  // lengths stay
  Buffer<std::byte> blocks_;                                                // of keys and values
};

/// Of the positions of a prompt.
RateCurve measure_angles(const Compute& compute, const Together& together, double on_node) {
  constexpr std::int64_t kPositions = 512;
  constexpr std::int64_t kHalf = kHead / 2;
  RopeConfig plain;
  plain.rotary_dim = kHead;
  const Rotary rotary(plain);
  const Buffer<float> cosines(kPositions * kHalf);
  const Buffer<float> sines(kPositions * kHalf);
  const double seconds = together.seconds([&] {
    compute.pool->for_each_row(kPositions, [&](std::int64_t position) {
      rotary.angles(position, kPositions, {cosines.data() + position * kHalf, kHalf},
                    {sines.data() + position * kHalf, kHalf});
    });
  });
  return {.sizes = {static_cast<double>(kPositions * kHalf)},
          .values = {seconds / on_node / static_cast<double>(kPositions * kHalf)}};
}

/// The likeliest token of a vocabulary is found.
RateCurve measure_samples(const Compute& compute, const Together& together, double on_node) {
  constexpr std::int64_t kVocabulary = 32768;
  const std::vector<float> logits = normal_numbers(kVocabulary, 1, 4);
  SamplingOptions greedy;
  greedy.temperature = 0;
  std::vector<Sampler> samplers(static_cast<std::size_t>(compute.pool->size()),
                                Sampler(greedy, 0, *compute.vector));
  const double seconds = together.seconds([&] {
    compute.pool->for_each(std::ssize(samplers), 1, [&](std::int64_t i) {
      (void)samplers[static_cast<std::size_t>(i)].sample(logits, {});
    });
  });
  return {.sizes = {static_cast<double>(kVocabulary)},
          .values = {seconds / on_node / static_cast<double>(std::ssize(samplers) * kVocabulary)}};
}

/// Seconds of a token whose experts are chosen by its scores.
double choosing_seconds(std::int64_t experts, const Compute& compute, const Together& together,
                        double on_node) {
  constexpr std::int64_t kTokens = 512;
  const std::vector<float> given = normal_numbers(kTokens * experts, 1, 5);
  std::vector<float> scores(given.size());
  std::vector<ExpertId> chosen(static_cast<std::size_t>(kTokens * kChoices));
  std::vector<float> weights(chosen.size());
  const RouterOptions options{.topk = kChoices, .normalize = true};
  const double seconds = together.seconds([&] {
    std::ranges::copy(given, scores.begin());
    compute.pool->for_each_row(kTokens, [&](std::int64_t token) {
      const auto its = [&](auto& all, std::int64_t count) {
        return std::span(all).subspan(static_cast<std::size_t>(token * count),
                                      static_cast<std::size_t>(count));
      };
      choose_experts({.scores = its(scores, experts),
                      .experts = its(chosen, kChoices),
                      .weights = its(weights, kChoices)},
                     options, *compute.vector);
    });
  });
  return seconds / on_node / static_cast<double>(kTokens);
}

/// Seconds of a choice in the part of a layer that plans, without what is done with its rows.
double planning_seconds(const Runtime& runtime, const Together& together, double round_seconds) {
  constexpr std::int64_t kTokens = 512;
  constexpr LayerShape kShape{.experts = 128, .hidden = 256, .intermediate = 32, .topk = kChoices};
  const Layout layout{.format = Format::bf16};
  const Compute compute = runtime.compute();
  const Buffer<std::byte> memory(layer_bytes(kShape, layout, kShape.experts));
  LayerCopies layer(kShape, layout, kShape.experts, {.memory = memory.span()}, compute);
  const auto alone = make_thread_communicators(1);
  const ModelPlacement placement(ExpertPlacement(kShape.experts, 1));
  TransposedGemm transposed(compute);
  PhaseTimes times;
  MoeWorkspace work({*alone.front(), placement, layer.gemm(), transposed, times},
                    kShape.hidden * element_bytes(layer.element()), kShape.topk);
  const Buffer<float> x(kTokens * kShape.hidden);
  std::ranges::copy(normal_numbers(x.size(), 1, 6), x.data());
  const Buffer<float> y(x.size());
  std::vector<double> samples;
  (void)together.seconds([&] {
    times = {};
    layer.copies().front().layer.begin(x.matrix(kTokens, kShape.hidden), work);
    layer.copies().front().layer.end(y.matrix(kTokens, kShape.hidden), work);
    samples.push_back(times[Phase::dispatch]);
  });
  const double rounding = round_seconds * static_cast<double>(x.size());
  return std::max(kLeastSeconds, (lower_quartile(std::move(samples)) - rounding) /
                                     static_cast<double>(kTokens * kChoices));
}

}  // namespace

std::array<RateCurve, kNumRowOps> measure_row_ops(const Runtime& runtime, const Together& together,
                                                  std::span<std::byte> memory, double job_seconds) {
  const auto on_node = static_cast<double>(runtime.grid().node().size());
  const Compute compute = runtime.compute();
  std::array<RateCurve, kNumRowOps> curves;
  RowWork work(compute, memory);
  for (const RowOp op : {RowOp::norm, RowOp::head_norm, RowOp::add, RowOp::look, RowOp::copy,
                         RowOp::rotate, RowOp::store, RowOp::round, RowOp::sum}) {
    // A row is looked at where it has just been written.
    const std::size_t sizes = op == RowOp::look ? 1 : kRowsOfCalls.size();
    for (const std::int64_t rows : std::span(kRowsOfCalls).first(sizes)) {
      const auto numbers = static_cast<double>(rows * kWidth);
      const int times = static_cast<int>(kRowsOfCalls.back() / rows);
      const double seconds = together.seconds([&] { work.run(op, rows); }, times);
      RateCurve& curve = curves[static_cast<std::size_t>(op)];
      curve.sizes.push_back(numbers);
      curve.values.push_back(std::max(seconds / 10, seconds - job_seconds) / on_node / numbers);
    }
  }
  curves[static_cast<std::size_t>(RowOp::angle)] = measure_angles(compute, together, on_node);
  curves[static_cast<std::size_t>(RowOp::sample)] = measure_samples(compute, together, on_node);
  return curves;
}

RoutingRates measure_routing(const Runtime& runtime, const Together& together,
                             const RateCurve& rounding) {
  const auto on_node = static_cast<double>(runtime.grid().node().size());
  const Compute compute = runtime.compute();
  constexpr std::int64_t kMany = 128;
  constexpr std::int64_t kFew = 32;
  const double many = choosing_seconds(kMany, compute, together, on_node);
  const double few = choosing_seconds(kFew, compute, together, on_node);
  RoutingRates rates;
  rates.score_seconds = std::max(kLeastSeconds, (many - few) / static_cast<double>(kMany - kFew));
  rates.choice_seconds =
      std::max(kLeastSeconds, (few - kFew * rates.score_seconds) / static_cast<double>(kChoices));
  rates.plan_seconds = planning_seconds(runtime, together, on_node * rounding.values.front());
  return rates;
}

}  // namespace moesaic
