// Rows and results of an MoE layer in the form in which they travel, and back; what its inputs
// chose.

#include <cstring>

#include "src/moe/moe_layer.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRowsPerTask = 8;

}  // namespace

void MoeLayer::write_activations(MatrixView<const float> x, WireRows& rows) const {
  rows.resize(x.rows(), x.cols() * element_bytes(element_));
  compute_.pool->for_each(x.rows(), kRowsPerTask, [&](std::int64_t token) {
    write_numbers(x.row(token), rows.activations(token));
  });
}

void MoeLayer::write_keys(MoeWorkspace& work) {
  if (!work.dropout.is_on()) return;
  std::int64_t token = 0;
  for (const std::uint64_t key : work.dropout.keys) work.rows.set_key(token++, key);
}

MoeLayer::RowForm MoeLayer::row_form(const MoeWorkspace& work) const {
  const bool is_training = work.keep != nullptr;  // which goes back through what products took
  if (codes_ && work.context.options.int8_rows && !is_training) return RowForm::codes;
  return codes_ || work.context.options.wire != WireForm::int8 ? RowForm::plain : RowForm::rounded;
}

void MoeLayer::encode_rows(MatrixView<const float> x, MoeWorkspace& work) const {
  const bool is_rounded = row_form(work) == RowForm::rounded;
  work.rows.resize(x.rows(), is_rounded ? codec(work).bytes(x.cols()) : codes_->bytes());
  compute_.pool->for_each(x.rows(), kRowsPerTask, [&](std::int64_t token) {
    const float* const from = x.row(token).data();
    std::byte* const to = work.rows.activations(token);
    if (is_rounded) return codec(work).encode(from, x.cols(), to);
    codes_->encode(from, to);
  });
}

/// Room for the rows of all sources, none of which is there yet.
void MoeLayer::start_decoding(MoeWorkspace& work) const {
  if (row_form(work) == RowForm::plain) return;
  const std::int64_t sources = work.routing.num_tokens + work.dispatch.num_received();
  work.decoded.reserve(sources * router_.hidden() * element_bytes(element_));
  work.is_decoded.assign(static_cast<std::size_t>(sources), false);
}

/// Those of `sources` that are not decoded; their rows are here.
void MoeLayer::decode_rows(std::span<const std::int32_t> sources, MoeWorkspace& work) const {
  if (row_form(work) == RowForm::plain) return;
  work.to_decode.clear();
  for (const std::int32_t source : sources) {
    const auto at = static_cast<std::size_t>(source);
    if (work.is_decoded[at]) continue;
    work.is_decoded[at] = true;
    work.to_decode.push_back(source);
  }
  const std::int64_t row_bytes = router_.hidden() * element_bytes(element_);
  const bool is_rounded = row_form(work) == RowForm::rounded;
  compute_.pool->for_each(std::ssize(work.to_decode), kRowsPerTask, [&](std::int64_t i) {
    const std::int64_t source = work.to_decode[static_cast<std::size_t>(i)];
    std::byte* const to = work.decoded.data() + source * row_bytes;
    const auto write = [&](std::int64_t first, std::span<const float> numbers) {
      write_numbers(numbers, to + first * element_bytes(element_));
    };
    const std::byte* const from = work.dispatch.source(source);
    if (is_rounded) return codec(work).decode(from, router_.hidden(), write);
    codes_->decode(from, write);
  });
}

/// Outputs become results, which leave if their exchange has been started.
void MoeLayer::finish_outputs(ChoiceBatch& choices, const Rows& rows,
                              const MoeWorkspace& work) const {
  if (!work.adds_parts()) {
    encode_results(choices, rows, codec(work));
    return choices.results.mark_ready(rows.first, rows.count);
  }
  const std::span<const std::int32_t> parts = choices.parts.add(rows.first, rows.count);
  sum_parts(choices, parts, codec(work));
  for (const std::int32_t part : parts) {
    const auto outputs = choices.parts.outputs_of(part);
    const bool is_whole = !choices.node_sums.awaits(outputs.front());
    for (const std::int32_t output : outputs) {
      choices.node_sums.mark_ready(output, 1);
      if (is_whole) choices.results.mark_ready(output, 1);
    }
  }
}

/// What ranks of this node send to this one, when all of it is here.
void MoeLayer::add_node_parts(ChoiceBatch& choices, const MoeWorkspace& work) const {
  if (work.context.nodes == nullptr) return;
  NodeSums& sums = choices.node_sums;
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    sums.wait();
  }
  const PhaseScope scope(work.context.times, Phase::combine);
  const WireCodec codec = this->codec(work);
  const std::int64_t hidden = router_.hidden();
  compute_.pool->for_each(std::ssize(sums.outputs()), kRowsPerTask, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t output = sums.outputs()[at];
    float* const sum = choices.outputs.data() + output * hidden;
    sums.add(at, {sum, static_cast<std::size_t>(hidden)});
    if (codec.is_exact()) return;
    codec.encode(sum, hidden, choices.coded.data() + output * codec.bytes(hidden));
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

/// Each in the row of its first output, and rounded to what travels, also if it stays.
void MoeLayer::sum_parts(ChoiceBatch& choices, std::span<const std::int32_t> parts,
                         const WireCodec& codec) const {
  const std::int64_t hidden = router_.hidden();
  compute_.pool->for_each(std::ssize(parts), kRowsPerTask, [&](std::int64_t i) {
    const auto outputs = choices.parts.outputs_of(parts[static_cast<std::size_t>(i)]);
    const auto weight = [&](std::int32_t output) {
      return choices.output_weights[static_cast<std::size_t>(output)];
    };
    const auto row = [&](std::int32_t output) { return choices.outputs.data() + output * hidden; };
    float* const sum = row(outputs.front());
    for (std::int64_t at = 0; at < hidden; ++at) sum[at] *= weight(outputs.front());
    for (const std::int32_t output : outputs.subspan(1)) {
      compute_.vector->add_scaled(row(output), weight(output), hidden, sum);
    }
    if (codec.is_exact() || choices.node_sums.awaits(outputs.front())) return;
    codec.encode(sum, hidden, choices.coded.data() + outputs.front() * codec.bytes(hidden));
  });
}

/// Rounds outputs to what travels; all are rounded, also those that stay.
void MoeLayer::encode_results(ChoiceBatch& choices, const Rows& rows,
                              const WireCodec& codec) const {
  if (codec.is_exact()) return;
  const std::int64_t hidden = router_.hidden();
  const std::int64_t bytes = codec.bytes(hidden);
  compute_.pool->for_each(rows.count, kRowsPerTask, [&](std::int64_t i) {
    const std::int64_t row = rows.first + i;
    codec.encode(choices.outputs.data() + row * hidden, hidden, choices.coded.data() + row * bytes);
  });
}

void MoeLayer::write_numbers(std::span<const float> numbers, std::byte* to) const {
  if (element_ == RowSource::Element::bf16) {
    compute_.vector->to_bf16(numbers.data(), std::ssize(numbers), reinterpret_cast<BFloat16*>(to));
  } else {
    std::memcpy(to, numbers.data(), numbers.size_bytes());
  }
}

/// Sources as BatchChoices has them.
std::vector<std::int64_t> MoeLayer::inputs_in_order(const MoeWorkspace& work) {
  std::vector<std::int64_t> sources;
  const std::int64_t tokens = work.routing.num_tokens;
  std::int64_t received = tokens;
  for (int peer = 0; peer < work.context.experts.size(); ++peer) {
    if (peer == work.context.experts.rank()) {
      for (std::int64_t token = 0; token < tokens; ++token) sources.push_back(token);
      continue;
    }
    const std::int64_t end = received + work.dispatch.counts()[static_cast<std::size_t>(peer)];
    for (; received < end; ++received) sources.push_back(received);
  }
  return sources;
}

void MoeLayer::list_choices(ChoiceBatch& choices, const MoeWorkspace& work) {
  const Routing& routing = choices.routing;
  BatchChoices& inputs = choices.inputs;
  inputs.topk = routing.topk;
  inputs.experts.clear();
  for (const std::int64_t source : inputs_in_order(work)) {
    const std::int32_t* const words =
        WireRows::experts_of(work.dispatch.words(source)) + routing.first_word;
    inputs.experts.insert(inputs.experts.end(), words, words + routing.topk);
  }
}

/// With the rows of finish_plan().
void MoeLayer::list_inputs(ChoiceBatch& choices, MoeWorkspace& work) const {
  list_choices(choices, work);
  choices.inputs.rows.clear();
  for (const std::int64_t source : inputs_in_order(work)) {
    choices.inputs.rows.push_back(row_of_source(source, work));
  }
}

}  // namespace moesaic
