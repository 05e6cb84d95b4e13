#include "launch/bench/exchange_bed.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/kernel_table.h"
#include "launch/bench/bench_timing.h"

namespace moesaic {
namespace {

constexpr std::int32_t kNoExpert = -1;  // of a token's row

/// Element `column` of a row: an integer that every form of rows and results keeps as it is, among
/// 128 the largest of which is 127.
float element(std::uint32_t seed, std::int64_t column) {
  if (column % 128 == 0) return 127;
  std::uint32_t bits = seed + static_cast<std::uint32_t>(column) * 0x9E3779B1U;
  bits = (bits ^ bits >> 15U) * 0x85EBCA77U;
  return static_cast<float>(static_cast<std::int32_t>(bits >> 25U) - 64);
}

void write(std::uint32_t seed, std::span<float> row) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = element(seed, static_cast<std::int64_t>(i));
}

/// How many of `bytes` at both places differ.
std::int64_t count_different(const void* found, const void* wanted, std::size_t bytes) {
  if (std::memcmp(found, wanted, bytes) == 0) return 0;
  const auto* f = static_cast<const std::byte*>(found);
  const auto* w = static_cast<const std::byte*>(wanted);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += f[i] == w[i] ? 0 : 1;
  return wrong;
}

}  // namespace

ExchangeBed::ExchangeBed(Communicator& experts, const Case& what)
    : case_(what),
      experts_(experts),
      rank_(experts.rank()),
      hidden_(what.shape.hidden),
      rows_(experts.make_row_memory(), activation_bytes(), what.shape.topk),
      codec_(what.wire, find_vector_kernels(Isa::scalar)),
      result_bytes_(codec_.bytes(hidden_)),
      outputs_(experts.make_row_memory()),
      exchange_(experts, what.placement, what.combine, what.nodes) {
  const LayerRouting& routing = what.routing;
  const std::int64_t topk = what.shape.topk;
  const std::int64_t tokens = routing.num_tokens() / experts.size();
  const std::int64_t first = rank_ * tokens;
  own_.num_tokens = tokens;
  own_.topk = topk;
  own_.weights.assign(static_cast<std::size_t>(tokens * topk), 1.0F);
  for (std::int64_t token = 0; token < routing.num_tokens(); ++token) {
    const std::span<const ExpertId> chosen = routing.experts_of(token);
    const bool is_own = token >= first && token < first + tokens;
    if (is_own) own_.experts.insert(own_.experts.end(), chosen.begin(), chosen.end());
    const auto here = std::ranges::count_if(
        chosen, [&](ExpertId expert) { return what.placement.rank_of(expert) == rank_; });
    if (here > 0 && !is_own) arrivals_.push_back(token);
    num_outputs_ += here;
  }
  if (what.combine == Combine::fast) rows_.have(WireRows::Extra::weights);
  renew_rows();
  outputs_.renew(num_outputs_ * result_bytes_);
  if (what.nodes != nullptr) node_outputs_ = Buffer<float>(num_outputs_ * hidden_);
  (void)exchange();  // its plan tells which output is which
  require(plan_.execute.num_outputs() == num_outputs_, ErrorKind::internal,
          "{} rows were planned for the experts of rank {}, whose tokens chose {}",
          plan_.execute.num_outputs(), rank_, num_outputs_);
}

/// Of a token's row.
std::int64_t ExchangeBed::activation_bytes() const noexcept {
  if (case_.codes) return case_.codes->bytes();
  return case_.wire == WireForm::int8 ? WireCodec::bytes(case_.wire, hidden_)
                                      : hidden_ * element_bytes(case_.element);
}

void ExchangeBed::write_row(std::uint32_t seed, std::byte* row) const {
  if (case_.codes) {
    std::vector<float> numbers(static_cast<std::size_t>(hidden_));
    write(seed, numbers);
    return case_.codes->encode(numbers.data(), row);
  }
  if (case_.wire == WireForm::int8) return write_result(seed, row);  // in the same form
  for (std::int64_t i = 0; i < hidden_; ++i) {
    const float value = element(seed, i);
    if (case_.element == RowSource::Element::bf16) {
      reinterpret_cast<BFloat16*>(row)[i] = to_bfloat16(value);
    } else {
      reinterpret_cast<float*>(row)[i] = value;
    }
  }
}

void ExchangeBed::write_result(std::uint32_t seed, std::byte* result) const {
  std::vector<float> numbers(static_cast<std::size_t>(hidden_));
  write(seed, numbers);
  if (codec_.is_exact()) {
    std::memcpy(result, numbers.data(), numbers.size() * sizeof(float));
  } else {
    codec_.encode(numbers.data(), hidden_, result);
  }
}

std::int64_t ExchangeBed::token_of_source(std::int64_t source) const {
  return source < own_.num_tokens
             ? rank_ * own_.num_tokens + source
             : arrivals_.at(static_cast<std::size_t>(source - own_.num_tokens));
}

std::uint32_t ExchangeBed::seed(std::int64_t token, std::int32_t expert) const {
  const auto mix = [](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t bits = (a ^ b) * 0xC2B2AE3DU;
    return bits ^ bits >> 13U;
  };
  return mix(mix(run_ * 0x27D4EB2FU, static_cast<std::uint32_t>(token)),
             static_cast<std::uint32_t>(expert) + 1);
}

/// Other memory, if a rank still reads those of the run before.
void ExchangeBed::renew_rows() {
  rows_.resize(own_.num_tokens);
  rows_.set_experts(own_);
  if (case_.combine == Combine::fast) rows_.set_extra_weights(own_);
}

void ExchangeBed::prepare() {
  ++run_;
  renew_rows();
  outputs_.renew(num_outputs_ * result_bytes_);
  for (std::int64_t token = 0; token < own_.num_tokens; ++token) {
    write_row(seed(token_of_source(token), kNoExpert), rows_.activations(token));
  }
  const std::span<const ExpertId> experts = case_.placement.experts_of(rank_);
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    for (auto o = plan_.execute.slot_begin[slot]; o < plan_.execute.slot_begin[slot + 1]; ++o) {
      const std::int32_t source = plan_.execute.output_sources[static_cast<std::size_t>(o)];
      const std::uint32_t contents =
          seed(token_of_source(source), static_cast<std::int32_t>(experts[slot]));
      write_result(contents, outputs().row(o).data());
      if (case_.nodes != nullptr) {
        write(contents, {node_outputs_.data() + o * hidden_, static_cast<std::size_t>(hidden_)});
      }
    }
  }
}

ExchangeBed::Times ExchangeBed::exchange() {
  dispatch_ = {};
  results_ = {};
  node_sums_.end();
  const RowLabel label{.step = run_, .layer = 0, .phase = {}};
  Times times;
  times.dispatch = time_once([&] {
    exchange_.plan_sends(own_, plan_);
    dispatch_ = exchange_.dispatch(rows_, plan_, label.at("rows"));
    dispatch_.wait();
    exchange_.finish_plan(own_, dispatch_, plan_);
  });
  times.combine = time_once([&] {
    if (case_.nodes != nullptr) send_node_parts(label.at("node sums"));
    results_ =
        exchange_.combine(MatrixView<const std::byte>(outputs()), plan_, label.at("results"));
    results_.wait();
  });
  return times;
}

/// Results leave for other nodes when the parts of this one are together.
void ExchangeBed::send_node_parts(const RowLabel& label) {
  node_sums_.plan(plan_.execute, case_.nodes->ranks().rank());
  node_sums_.start(case_.nodes->ranks(), node_outputs_.matrix(num_outputs_, hidden_), plan_.execute,
                   label);
  node_sums_.mark_ready(0, num_outputs_);
  node_sums_.wait();
}

RowCounters ExchangeBed::moved() const {
  RowCounters counters = experts_.row_counters();
  if (case_.nodes != nullptr) counters += case_.nodes->ranks().row_counters();
  return counters;
}

std::int64_t ExchangeBed::count_wrong() {
  const std::int64_t wrong = wrong_rows() + wrong_results() + wrong_node_parts();
  dispatch_ = {};
  results_ = {};
  node_sums_.end();
  return wrong;
}

std::int64_t ExchangeBed::wrong_rows() {
  const std::int64_t missing =
      std::abs(dispatch_.num_received() - static_cast<std::int64_t>(arrivals_.size()));
  if (missing > 0) return missing * rows_.row_bytes();
  std::vector<std::byte> wanted(static_cast<std::size_t>(rows_.activation_bytes()));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const std::int64_t source = own_.num_tokens + static_cast<std::int64_t>(i);
    write_row(seed(arrivals_[i], kNoExpert), wanted.data());
    wrong += count_different(dispatch_.source(source), wanted.data(), wanted.size());
    const std::span<const ExpertId> experts = case_.routing.experts_of(arrivals_[i]);
    wrong += count_different(dispatch_.words(source), experts.data(), experts.size_bytes());
  }
  return wrong;
}

/// The expert whose result comes for all that is added to it.
std::int32_t ExchangeBed::expert_of_result(std::int64_t choice) const {
  const TokenChoices token{rank_, own_.experts_of(choice / own_.topk)};
  const ExpertId expert = token.experts[static_cast<std::size_t>(choice % own_.topk)];
  if (case_.nodes == nullptr) return static_cast<std::int32_t>(expert);
  const NodeMap& map = case_.nodes->map();
  const std::size_t node = map.place_of(case_.placement.rank_of(expert)).node;
  return first_expert(token.experts, adding_rank(token, case_.placement, map, node));
}

/// Of a token's experts the first that `rank` has.
std::int32_t ExchangeBed::first_expert(std::span<const ExpertId> experts, int rank) const {
  return static_cast<std::int32_t>(*std::ranges::find(
      experts, rank, [&](ExpertId expert) { return case_.placement.rank_of(expert); }));
}

std::int64_t ExchangeBed::wrong_results() {
  std::vector<std::byte> wanted(static_cast<std::size_t>(result_bytes_));
  std::int64_t wrong = 0;
  for (std::int64_t choice = 0; choice < std::ssize(own_.experts); ++choice) {
    const std::byte* const found = results_.row(plan_, choice);
    if (found == nullptr) continue;  // added to that of another choice
    const std::int32_t expert = expert_of_result(choice);
    write_result(seed(token_of_source(choice / own_.topk), expert), wanted.data());
    wrong += count_different(found, wanted.data(), wanted.size());
  }
  return wrong;
}

std::int64_t ExchangeBed::wrong_node_parts() {
  std::vector<float> wanted(static_cast<std::size_t>(hidden_));
  const ExecutePlan::NodeParts& parts = plan_.execute.node_parts;
  std::int64_t wrong = 0;
  std::size_t row = 0;
  for (std::size_t peer = 0; peer < parts.recv_counts.size(); ++peer) {
    const NodeMap& map = case_.nodes->map();
    const int rank = map.ranks_of(map.place_of(rank_).node)[peer];
    for (const std::size_t end = row + static_cast<std::size_t>(parts.recv_counts[peer]); row < end;
         ++row) {
      const auto output = static_cast<std::size_t>(parts.recv_outputs[row]);
      const std::int64_t token = token_of_source(plan_.execute.output_sources[output]);
      write(seed(token, first_expert(case_.routing.experts_of(token), rank)), wanted);
      wrong +=
          count_different(node_sums_.received()[row], wanted.data(), wanted.size() * sizeof(float));
    }
  }
  return wrong;
}

std::array<RowMatrix, 2> ExchangeBed::matrices() const {
  return {RowMatrix{.base = rows_.data(),
                    .rows = own_.num_tokens,
                    .row_bytes = rows_.row_bytes(),
                    .stride_bytes = rows_.stride_bytes()},
          RowMatrix{.base = outputs_.data(),
                    .rows = num_outputs_,
                    .row_bytes = result_bytes_,
                    .stride_bytes = result_bytes_}};
}

ExchangeSizes ExchangeBed::sizes(const LayerShape& shape, WireForm wire, Combine combine) {
  const bool is_coded = wire == WireForm::int8;
  return {.activations = is_coded ? WireCodec::bytes(wire, shape.hidden) : shape.hidden * 2,
          .tag = shape.topk * (combine == Combine::fast ? 8 : 4),
          .result = WireCodec::bytes(wire, shape.hidden),
          .part = combine == Combine::fast ? shape.hidden * std::int64_t{sizeof(float)} : 0};
}

std::int64_t ExchangeBed::bytes_needed(const ExchangeSizes& sizes, const ExchangeLoads& loads,
                                       std::int64_t tokens) {
  const std::int64_t row_bytes = sizes.activations + sizes.tag;
  std::int64_t most = 0;
  for (int rank = 0; rank < loads.num_ranks(); ++rank) {
    std::int64_t rows = tokens;  // own ones, and packed or received ones
    std::int64_t results = 0;
    std::int64_t parts = 0;
    for (int peer = 0; peer < loads.num_ranks(); ++peer) {
      rows += loads.rows(rank, peer) + 2 * loads.rows(peer, rank);
      results +=
          loads.choices(peer, rank) + loads.results(peer, rank) + 2 * loads.results(rank, peer);
      parts += loads.choices(peer, rank) + 2 * loads.rows(peer, rank);
    }
    most = std::max(most, rows * row_bytes + results * sizes.result + parts * sizes.part);
  }
  return most;
}

}  // namespace moesaic
