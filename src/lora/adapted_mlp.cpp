#include "src/lora/adapted_mlp.h"

#include <algorithm>

namespace moesaic {
namespace {

constexpr std::int64_t kRowsPerTask = 8;

const Adapter* adapter_of(const AdaptedMlp& mlp, MlpMatrix part) {
  if (part == MlpMatrix::gate) return mlp.gate;
  return part == MlpMatrix::up ? mlp.up : mlp.down;
}

const PackedMatrix& matrix_of(const AdaptedMlp& mlp, MlpMatrix part) {
  if (part == MlpMatrix::gate) return mlp.weights.gate;
  return part == MlpMatrix::up ? mlp.weights.up : mlp.weights.down;
}

/// What an adapter adds to a product; nothing without one.
LowRank low_rank(const Adapter* adapter, const MatrixView<float>& inner) {
  if (adapter == nullptr) return {};
  return {first_columns(MatrixView<const float>(inner), adapter->rank()), adapter->b};
}

std::int64_t greatest_rank(std::span<const MlpRows> groups) {
  std::int64_t rank = 0;
  for (const MlpRows& group : groups) {
    for (const Adapter* adapter : {group.mlp->gate, group.mlp->up, group.mlp->down}) {
      if (adapter != nullptr) rank = std::max(rank, adapter->rank());
    }
  }
  return rank;
}

}  // namespace

void MlpStash::resize(std::int64_t rows, std::int64_t width) {
  rows_ = rows;
  width_ = width;
  gate_.reserve(rows * width);
  up_.reserve(rows * width);
}

void MlpStash::resize_inner(std::int64_t rows, std::int64_t rank) {
  inner_rows_ = rows;
  rank_ = rank;
  for (Buffer<float>& inner : inner_) inner.reserve(rows * rank);
}

std::int64_t MlpStash::bytes() const noexcept {
  std::int64_t floats = gate_.size() + up_.size();
  for (const Buffer<float>& inner : inner_) floats += inner.size();
  return 4 * floats;
}

/// The groups whose MLP has this adapter.
std::span<const AdapterRows> MlpProducts::adapted(std::span<const MlpRows> groups, MlpMatrix part) {
  adapter_rows_.clear();
  for (const auto& [first, count, mlp] : groups) {
    const Adapter* const adapter = adapter_of(*mlp, part);
    if (adapter != nullptr) adapter_rows_.push_back({first, count, adapter});
  }
  return adapter_rows_;
}

void MlpProducts::make_groups(const MlpForward& pass, const MlpStash& inner) {
  for (const MlpMatrix part : {MlpMatrix::gate, MlpMatrix::up}) {
    adapters_.project(pass.x, adapted(pass.groups, part), inner.inner(part));
  }
  mlp_groups_.clear();
  for (const auto& [first, count, mlp] : pass.groups) {
    mlp_groups_.push_back({.first_row = first, .num_rows = count, .weights = mlp->weights});
    MlpGroup& group = mlp_groups_.back();
    group.gate_epilogue.low_rank = low_rank(mlp->gate, inner.inner(MlpMatrix::gate));
    group.up_epilogue.low_rank = low_rank(mlp->up, inner.inner(MlpMatrix::up));
    if (pass.keep != nullptr) {
      group.gate_epilogue.keep = pass.keep->gate_rows();
      group.up_epilogue.keep = pass.keep->up_rows();
    }
  }
}

void MlpProducts::forward(const MlpForward& pass) {
  if (pass.groups.empty()) return;
  MlpStash& stash = pass.keep != nullptr ? *pass.keep : scratch_;
  if (pass.keep != nullptr) {
    stash.resize(pass.x.num_rows, pass.groups.front().mlp->weights.gate.rows);
  }
  stash.resize_inner(pass.x.num_rows, greatest_rank(pass.groups));
  make_groups(pass, stash);
  if (adapted(pass.groups, MlpMatrix::down).empty()) {
    gemm_.run_mlp(pass.x, mlp_groups_, {}, output_of(pass.y));
  } else {
    run_with_down(pass, stash);
  }
}

/// Adapters of down projections need whole rows of gated activations: these wait in memory.
void MlpProducts::run_with_down(const MlpForward& pass, const MlpStash& inner) {
  const std::int64_t width = pass.groups.front().mlp->weights.gate.rows;
  const std::int64_t row_bytes = width * element_bytes(pass.x.element);
  activations_.reserve(pass.x.num_rows * row_bytes);
  activation_rows_.clear();
  for (std::int64_t row = 0; row < pass.x.num_rows; ++row) {
    activation_rows_.push_back(activations_.data() + row * row_bytes);
  }
  gemm_.run_gated(
      pass.x, mlp_groups_, {},
      {.data = activations_.data(), .stride_bytes = row_bytes, .element = pass.x.element});
  const RowSource rows{.rows = activation_rows_.data(),
                       .num_rows = pass.x.num_rows,
                       .depth = width,
                       .element = pass.x.element};
  const MatrixView<float> down = inner.inner(MlpMatrix::down);
  adapters_.project(rows, adapted(pass.groups, MlpMatrix::down), down);
  gemm_groups_.clear();
  for (const auto& [first, count, mlp] : pass.groups) {
    gemm_groups_.push_back({.first_row = first,
                            .num_rows = count,
                            .weights = mlp->weights.down,
                            .epilogue = {.low_rank = low_rank(mlp->down, down)}});
  }
  gemm_.run(rows, gemm_groups_, output_of(pass.y));
}

/// dx = dy W + back A, or added to what is there. What passes through adapters goes along with the
/// product, but not where the matrix has its inputs in an order of its own.
void MlpProducts::pass_back(const Step& step, std::span<const MlpRows> groups) {
  const MatrixView<float> back = back_.matrix(step.dy.num_rows, rank_);
  adapters_.project_back(step.dy, adapted(groups, step.part), back);
  adapter_rows_.clear();
  gemm_groups_.clear();
  for (const auto& [first, count, mlp] : groups) {
    const Adapter* const adapter = adapter_of(*mlp, step.part);
    gemm_groups_.push_back(
        {.first_row = first, .num_rows = count, .weights = matrix_of(*mlp, step.part)});
    Epilogue& epilogue = gemm_groups_.back().epilogue;
    if (step.accumulate) epilogue.addend = step.dx;
    if (adapter == nullptr) continue;
    if (gemm_groups_.back().weights.order == nullptr) {
      epilogue.low_rank = {first_columns(MatrixView<const float>(back), adapter->rank()),
                           adapter->a};
    } else {
      adapter_rows_.push_back({first, count, adapter});
    }
  }
  adapters_.transposed().run(step.dy, gemm_groups_, output_of(step.dx));
  adapters_.pass_back(back, adapter_rows_, step.dx);
}

/// Gate and up become their gradients, gradients of the gated activations these.
void MlpProducts::pass_back_gating(const MlpBackward& pass, MatrixView<float> inner) {
  const MatrixView<float> gate = pass.stash.gate_rows();
  const MatrixView<float> up = pass.stash.up_rows();
  compute_.pool->for_each(inner.rows(), kRowsPerTask, [&](std::int64_t row) {
    const GatedRow gated{
        .gate = gate.row(row).data(), .up = up.row(row).data(), .inner = inner.row(row).data()};
    const float product = compute_.vector->gate_gradient({}, gated, inner.cols());
    if (pass.weight_gradients != nullptr) pass.weight_gradients[row] = product;
  });
}

void MlpProducts::add_gradients(const Step& step, const MlpBackward& pass,
                                AdapterGradients& gradients) {
  adapters_.add_gradients({.x = step.x,
                           .dy = step.dy,
                           .inner = pass.stash.inner(step.part),
                           .back = back_.matrix(step.dy.num_rows, rank_),
                           .row_weights = pass.row_weights,
                           .samples = pass.samples},
                          adapted(pass.groups, step.part), gradients);
}

void MlpProducts::backward(const MlpBackward& pass, AdapterGradients& gradients) {
  if (pass.groups.empty()) return;
  const std::int64_t rows = pass.x.num_rows;
  rank_ = greatest_rank(pass.groups);
  back_.reserve(rows * rank_);
  inner_.reserve(rows * pass.stash.width());
  const MatrixView<float> inner = inner_.matrix(rows, pass.stash.width());
  const Step down{.part = MlpMatrix::down, .x = inner_rows_.of(inner), .dy = pass.dy, .dx = inner};
  pass_back(down, pass.groups);
  pass_back_gating(pass, inner);
  add_gradients(down, pass, gradients);

  for (const MlpMatrix part : {MlpMatrix::gate, MlpMatrix::up}) {
    const bool is_up = part == MlpMatrix::up;
    const Step step{.part = part,
                    .x = pass.x,
                    .dy = gate_rows_.of(is_up ? pass.stash.up_rows() : pass.stash.gate_rows()),
                    .dx = pass.dx,
                    .accumulate = is_up};
    pass_back(step, pass.groups);
    add_gradients(step, pass, gradients);
  }
}

}  // namespace moesaic
