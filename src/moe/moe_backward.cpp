
#include "src/moe/moe_layer.h"

namespace moesaic {
namespace {

/// Result rows of backward passes, a gradient and that of the routing weight behind it, start on
/// cache lines.
constexpr std::int64_t kRowFloats = 16;

/// A row says which sample it is of: a number that no other sample on any rank has.
void mark_samples(std::span<const SampleRange> samples, MoeWorkspace& work) {
  const Communicator& comm = work.context.experts;
  std::int32_t mark = comm.rank();
  for (const auto& [first, count] : samples) {
    for (std::int64_t token = first; token < first + count; ++token) {
      work.gradient_rows.set_mark(token, mark);
    }
    mark += comm.size();
  }
}

/// What each output of the forward pass needs in the backward pass: rows, weight and sample.
void gather_rows(const MoeStash& stash, MoeWorkspace& work) {
  const ExecutePlan& plan = stash.plan.execute;
  const std::int64_t tokens = stash.routing.num_tokens;
  const std::int64_t row_bytes = work.rows.activation_bytes();
  work.output_rows.clear();
  work.gradient_output_rows.clear();
  work.row_weights.clear();
  work.samples.clear();
  std::size_t slot = 0;
  std::int32_t last_mark = -1;
  for (std::size_t output = 0; output < plan.output_sources.size(); ++output) {
    const std::int64_t source = plan.output_sources[output];
    const std::byte* const row = work.dispatch.source(source);
    work.output_rows.push_back(source < tokens
                                   ? work.rows.activations(source)
                                   : stash.received.data() + (source - tokens) * row_bytes);
    const std::byte* const words = work.dispatch.words(source);
    work.gradient_output_rows.push_back(row);
    const auto word = static_cast<std::size_t>(plan.output_words[output]);
    work.row_weights.push_back(WireRows::weights_of(words)[word]);
    const auto at = static_cast<std::int64_t>(output);
    const bool next_slot = plan.slot_begin[slot + 1] <= at;
    while (plan.slot_begin[slot + 1] <= at) ++slot;
    const std::int32_t mark = work.gradient_rows.mark_of(words);
    if (work.samples.empty() || next_slot || mark != last_mark) work.samples.push_back({at, 0});
    ++work.samples.back().num_rows;
    last_mark = mark;
  }
}

}  // namespace

void MoeLayer::begin_backward(const MoeBackward& pass, MoeWorkspace& work) {
  const MoeStash& stash = pass.stash;
  {
    const PhaseScope scope(work.context.times, Phase::dispatch);
    rows_.encode(pass.part.x, RowForm::plain, work.rows);
    rows_.encode(pass.part.dy, RowForm::plain, work.gradient_rows);
    work.gradient_rows.set_weights(stash.routing);
    mark_samples(pass.part.samples, work);
  }
  const PhaseScope scope(work.context.times, Phase::wait);
  work.dispatch =
      work.exchange.dispatch(work.gradient_rows, stash.plan, work.label.at("gradients"));
  work.has_executed = false;
}

void MoeLayer::execute_backward(const MoeBackward& pass, MoeWorkspace& work) {
  MoeStash& stash = pass.stash;
  PhaseTimes& times = work.context.times;
  {
    const PhaseScope scope(times, Phase::wait);
    work.dispatch.wait();
  }
  {
    const PhaseScope scope(times, Phase::dispatch);
    gather_rows(stash, work);
  }
  const std::int64_t hidden = router_.hidden();
  const std::int64_t stride = round_up(hidden + 1, kRowFloats);
  const std::int64_t count = stash.plan.execute.num_outputs();
  work.outputs.renew(count * stride);
  work.weight_gradients.resize(static_cast<std::size_t>(count));
  const MatrixView<float> results(work.outputs.data(), count, hidden + 1, stride);
  {
    const PhaseScope scope(times, Phase::experts);
    experts_->backward({.rows = work.output_rows,
                        .gradient_rows = work.gradient_output_rows,
                        .row_weights = work.row_weights,
                        .slot_begin = stash.plan.execute.slot_begin,
                        .stash = stash.experts,
                        .dx = {results.data(), count, hidden, stride},
                        .weight_gradients = work.weight_gradients,
                        .samples = work.samples,
                        .dropout = {work.dropout.share, stash.output_keys}},
                       pass.part.adapters);
  }
  for (std::int64_t output = 0; output < count; ++output) {
    results(output, hidden) = work.weight_gradients[static_cast<std::size_t>(output)];
  }
  const PhaseScope scope(times, Phase::wait);
  work.dispatch = {};
  work.results = work.exchange.combine(results, stash.plan, work.label.at("backward"));
  work.has_executed = true;
}

void MoeLayer::end_backward(const MoeBackward& pass, MoeWorkspace& work) {
  if (!work.has_executed) execute_backward(pass, work);
  const MoeStash& stash = pass.stash;
  const std::int64_t hidden = router_.hidden();
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.results.wait();
  }
  {
    const PhaseScope scope(work.context.times, Phase::combine);
    const ResultSums::Results results{stash.routing, stash.plan, work.results};
    sums_.sum(pass.part.dx, {&results, 1}, work.context);
    const std::int64_t choices = stash.routing.num_tokens * stash.routing.topk;
    work.weight_gradients.resize(static_cast<std::size_t>(choices));
    for (std::int64_t choice = 0; choice < choices; ++choice) {
      work.weight_gradients[static_cast<std::size_t>(choice)] =
          work.results.result(stash.plan, choice)[hidden];
    }
    work.results = {};
  }
  const PhaseScope scope(work.context.times, Phase::route);
  const std::int64_t kept_tokens = router_.needs_scores() ? stash.routing.num_tokens : 0;
  router_.pass_back({.routing = stash.routing,
                     .scores = stash.router_scores.matrix(kept_tokens, router_.num_experts()),
                     .weight_gradients = work.weight_gradients,
                     .dx = pass.part.dx},
                    work.context.transposed, work.router_scratch);
}

}  // namespace moesaic
