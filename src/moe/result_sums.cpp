#include "src/moe/result_sums.h"

#include <algorithm>

#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

/// Rows of a token lie anywhere, and the CPU's own prefetching begins anew with each: asks for the
/// start of the next.
void ask_for(const std::byte* row) {
  constexpr std::int64_t kLines = 8;
  if (row != nullptr) prefetch_lines(row, kLines);
}

}  // namespace

void ResultSums::finish_outputs(ChoiceBatch& choices, const Rows& rows,
                                const MoeContext& context) const {
  if (!context.adds_parts()) {
    encode(choices, rows, codec(context));
    return choices.results.mark_ready(rows.first, rows.count);
  }
  const std::span<const std::int32_t> parts = choices.parts.add(rows.first, rows.count);
  sum_parts(choices, parts, codec(context));
  for (const std::int32_t part : parts) {
    const auto outputs = choices.parts.outputs_of(part);
    const bool is_whole = !choices.node_sums.awaits(outputs.front());
    for (const std::int32_t output : outputs) {
      choices.node_sums.mark_ready(output, 1);
      if (is_whole) choices.results.mark_ready(output, 1);
    }
  }
}

void ResultSums::add_node_parts(ChoiceBatch& choices, const MoeContext& context) const {
  if (context.nodes == nullptr) return;
  NodeSums& sums = choices.node_sums;
  {
    const PhaseScope scope(context.times, Phase::wait);
    sums.wait();
  }
  const PhaseScope scope(context.times, Phase::combine);
  const WireCodec codec = this->codec(context);
  compute_.pool->for_each_row(std::ssize(sums.outputs()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t output = sums.outputs()[at];
    float* const sum = choices.outputs.data() + output * hidden_;
    sums.add(at, {sum, static_cast<std::size_t>(hidden_)});
    if (codec.is_exact()) return;
    codec.encode(sum, hidden_, choices.coded.data() + output * codec.bytes(hidden_));
  });
  sums.end();
  for (const std::int32_t first : sums.outputs()) {
    const std::vector<std::int32_t>& parts = choices.plan.execute.output_parts;
    for (const std::int32_t output :
         choices.parts.outputs_of(parts[static_cast<std::size_t>(first)])) {
      choices.results.mark_ready(output, 1);
    }
  }
}

/// Each in the row of its first output, and rounded to what travels, also if it stays. (Parts that
/// a rank of the node adds to its own leave as they are, and are rounded in vain.)
void ResultSums::sum_parts(ChoiceBatch& choices, std::span<const std::int32_t> parts,
                           const WireCodec& codec) const {
  compute_.pool->for_each_row(std::ssize(parts), [&](std::int64_t i) {
    const auto outputs = choices.parts.outputs_of(parts[static_cast<std::size_t>(i)]);
    const auto weight = [&](std::int32_t output) {
      return choices.output_weights[static_cast<std::size_t>(output)];
    };
    const auto row = [&](std::int32_t output) { return choices.outputs.data() + output * hidden_; };
    float* const sum = row(outputs.front());
    for (std::int64_t at = 0; at < hidden_; ++at) sum[at] *= weight(outputs.front());
    for (const std::int32_t output : outputs.subspan(1)) {
      compute_.vector->add_scaled(row(output), weight(output), hidden_, sum);
    }
    if (codec.is_exact() || choices.node_sums.awaits(outputs.front())) return;
    codec.encode(sum, hidden_, choices.coded.data() + outputs.front() * codec.bytes(hidden_));
  });
}

/// Rounds outputs to what travels; all are rounded, also those that stay.
void ResultSums::encode(ChoiceBatch& choices, const Rows& rows, const WireCodec& codec) const {
  if (codec.is_exact()) return;
  const std::int64_t bytes = codec.bytes(hidden_);
  compute_.pool->for_each_row(rows.count, [&](std::int64_t i) {
    const std::int64_t row = rows.first + i;
    codec.encode(choices.outputs.data() + row * hidden_, hidden_,
                 choices.coded.data() + row * bytes);
  });
}

void ResultSums::sum(MatrixView<float> y, std::span<const Results> parts,
                     const MoeContext& context) const {
  const WireCodec codec = this->codec(context);
  const bool is_weighted = context.adds_parts();
  compute_.pool->for_each_row(y.rows(), [&](std::int64_t token) {
    const std::span<float> sum = y.row(token);
    std::ranges::fill(sum, 0.0F);
    for (const auto& [routing, plan, home] : parts) {
      for (std::int64_t choice = token * routing.topk; choice < (token + 1) * routing.topk;
           ++choice) {
        if (choice + 1 < y.rows() * routing.topk) ask_for(home.row(plan, choice + 1));
        const std::byte* const row = home.row(plan, choice);
        if (row == nullptr) continue;
        const float weight = routing.weights[static_cast<std::size_t>(choice)];
        codec.add_scaled(row, is_weighted ? 1.0F : weight, sum);
      }
    }
  });
}

}  // namespace moesaic
