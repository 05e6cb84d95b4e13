#include "src/moe/moe_layer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "src/moe/chosen_inputs.h"
#include "src/parallel/result_pieces.h"

namespace moesaic {
namespace {

/// Of one of kResultPieces at least.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 10;

std::int64_t num_rows(const ChoiceBatch& choices) {
  return choices.plan.execute.num_outputs();
}

/// What experts' ranks need to know of these choices.
void set_words(const Routing& routing, MoeWorkspace& work) {
  work.rows.set_experts(routing);
  if (work.context.adds_parts()) work.rows.set_extra_weights(routing);
}

/// The weights came with the rows.
void weigh_outputs(ChoiceBatch& choices, const MoeWorkspace& work) {
  const ExecutePlan& plan = choices.plan.execute;
  choices.output_weights.clear();
  for (std::size_t output = 0; output < plan.output_sources.size(); ++output) {
    const std::byte* const words = work.dispatch.words(plan.output_sources[output]);
    const std::int64_t word = choices.routing.first_word + plan.output_words[output];
    choices.output_weights.push_back(work.rows.extra_weights_of(words)[word]);
  }
  choices.parts.start(plan);
  if (work.context.nodes == nullptr) return;
  choices.node_sums.plan(plan, work.context.nodes->ranks().rank());
}

void write_keys(MoeWorkspace& work) {
  if (!work.dropout.is_on()) return;
  std::int64_t token = 0;
  for (const std::uint64_t key : work.dropout.keys) work.rows.set_key(token++, key);
}

void keep_received(MoeWorkspace& work) {
  const std::int64_t count = work.dispatch.num_received();
  const std::int64_t bytes = work.rows.activation_bytes();
  work.keep->received.reserve(count * bytes);
  for (std::int64_t row = 0; row < count; ++row) {
    std::memcpy(work.keep->received.data() + row * bytes,
                work.dispatch.source(work.routing.num_tokens + row),
                static_cast<std::size_t>(bytes));
  }
}

/// What is kept is kept of all rows; in a node they are there at once.
bool runs_as_rows_come(const MoeWorkspace& work) {
  return work.keep == nullptr && work.exchange.has_messages();
}

}  // namespace

void MoeLayer::begin(MatrixView<const float> x, MoeWorkspace& work) {
  choose(x, work);
  if (experts_->plans_itself()) tell_placement(work);
  work.has_executed = false;
  work.is_on_road = goes_by_road(work.routing);
  if (work.is_on_road) return begin_on_road(x, work);
  {
    const PhaseScope scope(work.context.times, Phase::dispatch);
    const WireRows::Extra extra =
        work.context.adds_parts() ? WireRows::Extra::weights : WireRows::Extra::none;
    work.rows.have(work.dropout.is_on() ? WireRows::Extra::key : extra);
    work.row_form = rows_.form(work.context.options, work.keep != nullptr);
    rows_.encode(x, work.row_form, work.rows);
    write_keys(work);
  }
  work.dispatch = send_rows(work);
}

void MoeLayer::choose(MatrixView<const float> x, MoeWorkspace& work) const {
  const PhaseScope scope(work.context.times, Phase::route);
  std::span<const ExpertId> given;
  if (work.choices != nullptr) given = *work.choices;
  router_.route(x, work.context.gemm, work.router_scratch, work.routing, given);
  if (work.choices != nullptr) *work.choices = work.routing.experts;
  if (work.keep != nullptr) keep_scores(work);
  if (work.statistics != nullptr) {
    router_.add_statistics(work.routing, work.router_scratch, *work.statistics);
  }
  count_choices(work);
}

void MoeLayer::count_choices(MoeWorkspace& work) const {
  const auto layer = static_cast<std::size_t>(std::max(work.label.layer, 0));
  if (work.expert_rows.size() <= layer) work.expert_rows.resize(layer + 1);
  std::vector<std::int64_t>& rows = work.expert_rows[layer];
  rows.resize(static_cast<std::size_t>(router_.num_experts()));
  for (const ExpertId expert : work.routing.experts) ++rows[static_cast<std::size_t>(expert)];
}

/// Rows go to the ranks of all choices, deferred or not; only results are planned for each kind.
PendingDispatch MoeLayer::send_rows(MoeWorkspace& work) const {
  Deferral& deferral = work.deferral;
  const bool defers = work.defer > 0;
  ExchangePlan& plan = defers ? deferral.row_plan : work.plan;
  {
    const PhaseScope scope(work.context.times, Phase::dispatch);
    if (defers) {
      std::swap(work.routing, deferral.all);
      split_routing(deferral.all, work.defer, work.routing, deferral.left().routing);
      set_words(deferral.left().routing, work);
    }
    set_words(work.routing, work);
  }
  const PhaseScope scope(work.context.times, Phase::wait);
  work.exchange.plan_sends(defers ? deferral.all : work.routing, plan);
  const auto sent = static_cast<std::int64_t>(plan.send.send_tokens.size());
  work.load.rows_sent += sent;
  work.load.bytes_sent += sent * work.rows.row_bytes();
  return work.exchange.dispatch(work.rows, plan, work.label.at("rows"));
}

void MoeLayer::keep_scores(MoeWorkspace& work) const {
  if (!router_.needs_scores()) return;
  const std::int64_t count = work.routing.num_tokens * router_.num_experts();
  work.keep->router_scores.reserve(count);
  std::copy_n(work.router_scratch.scores.data(), count, work.keep->router_scores.data());
}

void MoeLayer::tell_placement(const MoeWorkspace& work) const {
  const std::int64_t layer = std::max(work.label.layer, 0);
  experts_->tell_placement(work.context.placement.of_layer(layer), work.context.experts.rank());
}

const std::byte* MoeLayer::row_of_source(std::int64_t source, const MoeWorkspace& work) const {
  return work.row_form == RowForm::plain ? work.dispatch.source(source) : work.decoded.row(source);
}

void MoeLayer::decode_rows(std::span<const std::int32_t> sources, MoeWorkspace& work) const {
  if (work.row_form == RowForm::plain) return;
  rows_.decode(sources, work.row_form, work.dispatch, work.decoded);
}

/// With the rows of finish_plan().
void MoeLayer::list_inputs(ChoiceBatch& choices, const MoeWorkspace& work) const {
  choices.inputs.rows.clear();
  for (const std::int64_t source : list_choices(work.context.experts, work.dispatch, choices)) {
    choices.inputs.rows.push_back(row_of_source(source, work));
  }
}

void MoeLayer::finish_plan(ChoiceBatch& choices, MoeWorkspace& work) {
  work.exchange.finish_plan(choices.routing, work.dispatch, choices.plan);
  choices.output_rows.clear();
  choices.output_keys.clear();
  if (work.context.adds_parts()) weigh_outputs(choices, work);
  if (experts_->plans_itself()) list_inputs(choices, work);
  for (const std::int32_t source : choices.plan.execute.output_sources) {
    choices.output_rows.push_back(row_of_source(source, work));
    if (!work.dropout.is_on()) continue;
    choices.output_keys.push_back(work.rows.key_of(work.dispatch.words(source)));
  }
  choices.outputs.renew(num_rows(choices) * router_.hidden());
  choices.experts = experts_.get();
}

void MoeLayer::finish_plans(MoeWorkspace& work) {
  const PhaseScope scope(work.context.times, Phase::dispatch);
  if (work.row_form != RowForm::plain) {
    work.decoded.start(work.routing.num_tokens + work.dispatch.num_received(), rows_.row_bytes());
  }
  DeferredChoices& left = work.deferral.left();
  if (work.defer > 0) {
    for (ChoiceBatch* const choices :
         {static_cast<ChoiceBatch*>(&work), static_cast<ChoiceBatch*>(&left)}) {
      work.exchange.plan_sends(choices->routing, choices->plan);
    }
    finish_plan(left, work);
  }
  finish_plan(work, work);
  if (!runs_as_rows_come(work)) {
    decode_rows(work.plan.execute.output_sources, work);
    if (work.defer > 0) decode_rows(left.plan.execute.output_sources, work);
  }
  if (work.keep != nullptr) keep_received(work);
}

void MoeLayer::compute(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const {
  const PhaseScope scope(work.context.times, Phase::experts);
  const auto begin = std::span<const std::int64_t>(choices.plan.execute.slot_begin)
                         .subspan(slots.first, slots.count + 1);
  const auto first = begin.front();
  const std::int64_t count = begin.back() - first;
  const std::int64_t hidden = router_.hidden();
  MatrixView<float> outputs;
  if (!work.keeps_alone) outputs = {choices.outputs.data() + first * hidden, count, hidden};
  const auto its = [&](const auto& all) {
    return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  Dropout dropout;
  if (work.dropout.is_on()) dropout = {work.dropout.share, its(choices.output_keys)};
  const bool is_whole =
      choices.experts->plans_itself() && begin.size() == choices.plan.execute.slot_begin.size();
  choices.experts->start({.first_slot = slots.first,
                          .rows = its(choices.output_rows),
                          .slot_begin = begin,
                          .outputs = outputs,
                          .keep = work.keep != nullptr ? &work.keep->experts : nullptr,
                          .dropout = dropout,
                          .choices = is_whole ? &choices.inputs : nullptr});
  choices.experts->finish();
}

void MoeLayer::compute_and_send(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const {
  compute(choices, slots, work);
  const std::vector<std::int64_t>& begin = choices.plan.execute.slot_begin;
  const std::int64_t first = begin[slots.first];
  const std::int64_t count = begin[slots.first + slots.count] - first;
  sums_.finish_outputs(choices, {first, count}, work.context);
}

void MoeLayer::compute_while_waiting(DeferredChoices& deferred, MoeWorkspace& work,
                                     const std::function<bool()>& is_done) const {
  if (!deferred.is_pending) return;
  while (!is_done()) {
    const auto slot = deferred.next_slot();
    if (!slot) return;
    compute_and_send(deferred, *slot, work);
  }
}

void MoeLayer::send_results(ChoiceBatch& choices, TokenExchange::Outputs when,
                            MoeWorkspace& work) const {
  const std::int64_t rows = num_rows(choices);
  const WireCodec codec = sums_.codec(work.context);
  const std::int64_t bytes = codec.bytes(router_.hidden());
  const std::byte* data = reinterpret_cast<const std::byte*>(choices.outputs.data());
  if (!codec.is_exact()) {
    choices.coded.renew(rows * bytes);
    data = choices.coded.data();
  }
  const bool is_written = when == TokenExchange::Outputs::written;
  require(!is_written || work.context.nodes == nullptr, ErrorKind::internal,
          "sums of a node await outputs that are marked one by one");
  if (is_written) sums_.finish_outputs(choices, {0, rows}, work.context);
  const PhaseScope scope(work.context.times, Phase::wait);
  if (const ExpertNodes* const nodes = work.context.nodes; nodes != nullptr) {
    const std::int64_t hidden = router_.hidden();
    choices.node_sums.start(nodes->ranks(), {choices.outputs.data(), rows, hidden},
                            choices.plan.execute, work.label.at("node sums"));
    work.load.bytes_sent += std::ssize(choices.plan.execute.node_parts.send_outputs) * hidden *
                            std::int64_t{sizeof(float)};
  }
  choices.results =
      work.exchange.combine({data, rows, bytes}, choices.plan,
                            work.label.at(&choices == &work ? "results" : "deferred"), when);
  work.load.rows += rows;
  work.load.bytes_sent += std::ssize(choices.plan.execute.return_outputs) * bytes;
  work.load.results_saved += choices.plan.execute.results_saved;
  work.load.result_bytes_saved += choices.plan.execute.results_saved * bytes;
}

/// The rows of these slots' outputs.
void MoeLayer::decode_inputs(SlotRange slots, MoeWorkspace& work) const {
  const PhaseScope scope(work.context.times, Phase::dispatch);
  const ExecutePlan& plan = work.plan.execute;
  const auto first = static_cast<std::size_t>(plan.slot_begin[slots.first]);
  const auto end = static_cast<std::size_t>(plan.slot_begin[slots.first + slots.count]);
  decode_rows(std::span(plan.output_sources).subspan(first, end - first), work);
}

void MoeLayer::compute_as_rows_come(MoeWorkspace& work) const {
  send_results(work, TokenExchange::Outputs::later, work);
  const std::int64_t piece_rows = kPieceBytes / sums_.codec(work.context).bytes(router_.hidden());
  work.slots.start(work.plan.execute, std::max(piece_rows, num_rows(work) / kResultPieces));
  DeferredChoices& due = work.deferral.due();
  while (!work.slots.is_empty()) {
    work.context.experts.progress();
    const auto slots =
        work.slots.next([&](std::int64_t source) { return work.dispatch.is_here(source); });
    if (slots) {
      decode_inputs(*slots, work);
      compute_and_send(work, *slots, work);
    } else if (const auto slot = due.is_pending ? due.next_slot() : std::nullopt) {
      compute_and_send(due, *slot, work);
    } else {
      const PhaseScope scope(work.context.times, Phase::wait);
      work.dispatch.wait_for_more();
    }
  }
  compute_while_waiting(due, work, [&] { return work.node_sums.is_done(); });
  sums_.add_node_parts(work, work.context);
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.dispatch.wait();
  }
  if (work.defer == 0) return;
  const PhaseScope scope(work.context.times, Phase::dispatch);
  decode_rows(work.deferral.left().plan.execute.output_sources, work);
}

void MoeLayer::execute(MoeWorkspace& work) {
  work.has_executed = true;
  if (work.is_on_road) return execute_on_road(work);
  DeferredChoices& due = work.deferral.due();
  const bool as_rows_come = runs_as_rows_come(work);
  compute_while_waiting(due, work, [&] {
    return as_rows_come ? work.dispatch.has_words() : work.dispatch.is_done();
  });
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    if (as_rows_come) {
      work.dispatch.wait_for_words();
    } else {
      work.dispatch.wait();
    }
  }
  finish_plans(work);
  if (as_rows_come) {
    compute_as_rows_come(work);
  } else {
    compute(work, {0, work.plan.execute.slot_begin.size() - 1}, work);
  }
  if (work.defer > 0) {
    work.deferral.hold(work.rows, work.decoded, std::move(work.dispatch));
  } else {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.dispatch = {};
  }
  if (!as_rows_come && !work.keeps_alone) send_results(work, TokenExchange::Outputs::written, work);
  if (due.is_pending) {
    if (const auto slots = due.remaining_slots()) compute_and_send(due, *slots, work);
    sums_.add_node_parts(due, work.context);
  }
  if (work.defer > 0) send_results(work.deferral.left(), TokenExchange::Outputs::later, work);
}

void MoeLayer::end(MatrixView<float> y, MoeWorkspace& work) {
  if (!work.has_executed) execute(work);
  if (work.is_on_road) return end_on_road(y, work);
  DeferredChoices& due = work.deferral.due();
  compute_while_waiting(work.deferral.left(), work,
                        [&] { return work.results.is_done() && due.results.is_done(); });
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.results.wait();
    due.results.wait();
  }
  const PhaseScope scope(work.context.times, Phase::combine);
  const std::array<ResultSums::Results, 2> parts = {
      {{due.routing, due.plan, due.results}, {work.routing, work.plan, work.results}}};
  sums_.sum(y, std::span(parts).subspan(due.is_pending ? 0 : 1), work.context);
  work.results = {};
  work.deferral.next_layer();
  if (work.keep != nullptr) {
    work.keep->routing = std::move(work.routing);
    work.keep->plan = std::move(work.plan);
    work.keep->output_keys = std::move(work.output_keys);
  }
}

}  // namespace moesaic
