#include "src/lora/adapted_mlp.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRowsPerTask = 8;

GemmOutput output_of(const MatrixView<float>& matrix) {
  return {.data = reinterpret_cast<std::byte*>(matrix.data()), .stride_bytes = matrix.stride() * 4};
}

}  // namespace

/// The groups whose MLP has this adapter.
std::span<const AdapterRows> MlpProducts::adapted(std::span<const MlpRows> groups,
                                                  Addition addition) {
  adapter_rows_.clear();
  for (const auto& [first, count, mlp] : groups) {
    if (mlp->*addition != nullptr) adapter_rows_.push_back({first, count, mlp->*addition});
  }
  return adapter_rows_;
}

/// What adapters add to gate or up; nothing if there are none.
MatrixView<const float> MlpProducts::addend(const MlpForward& pass, Addition addition,
                                            Buffer<float>& memory) {
  const std::span<const AdapterRows> rows = adapted(pass.groups, addition);
  if (rows.empty()) return {};
  const std::int64_t width = pass.groups.front().mlp->weights.gate.rows;
  memory.reserve(pass.x.num_rows * width);
  const MatrixView<float> sums = memory.matrix(pass.x.num_rows, width);
  adapters_.forward(pass.x, rows, {sums});
  return sums;
}

void MlpProducts::make_groups(const MlpForward& pass) {
  const MatrixView<const float> gate = addend(pass, &AdaptedMlp::gate, gate_addend_);
  const MatrixView<const float> up = addend(pass, &AdaptedMlp::up, up_addend_);
  mlp_groups_.clear();
  for (const auto& [first, count, mlp] : pass.groups) {
    mlp_groups_.push_back({.first_row = first, .num_rows = count, .weights = mlp->weights});
    MlpGroup& group = mlp_groups_.back();
    if (mlp->gate != nullptr) group.gate_epilogue.addend = gate;
    if (mlp->up != nullptr) group.up_epilogue.addend = up;
    if (pass.keep != nullptr) {
      group.gate_epilogue.keep = pass.keep->gate_rows();
      group.up_epilogue.keep = pass.keep->up_rows();
    }
  }
}

void MlpProducts::forward(const MlpForward& pass) {
  if (pass.groups.empty()) return;
  const std::int64_t width = pass.groups.front().mlp->weights.gate.rows;
  if (pass.keep != nullptr) pass.keep->resize(pass.x.num_rows, width);
  make_groups(pass);
  const std::span<const AdapterRows> rows = adapted(pass.groups, &AdaptedMlp::down);
  RowSource inner{.num_rows = pass.x.num_rows, .depth = width, .element = pass.x.element};
  if (!rows.empty()) {
    const std::int64_t row_bytes = width * element_bytes(pass.x.element);
    activations_.reserve(pass.x.num_rows * row_bytes);
    activation_rows_.clear();
    for (std::int64_t row = 0; row < pass.x.num_rows; ++row) {
      activation_rows_.push_back(activations_.data() + row * row_bytes);
    }
    inner.rows = activation_rows_.data();
    for (MlpGroup& group : mlp_groups_) group.inner = activations_.data();
  }
  gemm_.run_mlp(pass.x, mlp_groups_, {}, output_of(pass.y));
  if (!rows.empty()) adapters_.forward(inner, rows, {pass.y, true});
}

/// dx = dy W, or dx += dy W.
void MlpProducts::pass_back(const RowSource& dy, std::span<const MlpRows> groups, Matrix matrix,
                            const AdapterSum& dx) {
  gemm_groups_.clear();
  for (const auto& [first, count, mlp] : groups) {
    gemm_groups_.push_back(
        {.first_row = first, .num_rows = count, .weights = mlp->weights.*matrix});
    if (dx.accumulate) gemm_groups_.back().epilogue.addend = dx.matrix;
  }
  adapters_.transposed().run(dy, gemm_groups_, output_of(dx.matrix));
}

/// Gate and up become their gradients, gradients of the gated activations these.
void MlpProducts::pass_back_gating(const MlpBackward& pass, MatrixView<float> inner) {
  const MatrixView<float> gate = pass.stash.gate_rows();
  const MatrixView<float> up = pass.stash.up_rows();
  compute_.pool->for_each(inner.rows(), kRowsPerTask, [&](std::int64_t row) {
    const float product = compute_.vector->gate_gradient(
        {},
        {.gate = gate.row(row).data(), .up = up.row(row).data(), .inner = inner.row(row).data()},
        inner.cols());
    if (pass.weight_gradients != nullptr) pass.weight_gradients[row] = product;
  });
}

void MlpProducts::backward(const MlpBackward& pass, AdapterGradients& gradients) {
  if (pass.groups.empty()) return;
  const std::int64_t rows = pass.x.num_rows;
  inner_.reserve(rows * pass.stash.width());
  const MatrixView<float> inner = inner_.matrix(rows, pass.stash.width());
  pass_back(pass.dy, pass.groups, &MlpWeights::down, {inner});
  adapters_.pass_back(pass.dy, adapted(pass.groups, &AdaptedMlp::down), inner);
  pass_back_gating(pass, inner);
  AdapterGradientInput input{.x = inner_rows_.of(inner),
                             .dy = pass.dy,
                             .row_weights = pass.row_weights,
                             .samples = pass.samples};
  adapters_.add_gradients(input, adapted(pass.groups, &AdaptedMlp::down), gradients);

  input.x = pass.x;
  const auto pass_on = [&](MatrixView<float> dy, Matrix matrix, Addition addition) {
    input.dy = inner_rows_.of(dy);
    pass_back(input.dy, pass.groups, matrix, {pass.dx, matrix == &MlpWeights::up});
    adapters_.pass_back(input.dy, adapted(pass.groups, addition), pass.dx);
    adapters_.add_gradients(input, adapted(pass.groups, addition), gradients);
  };
  pass_on(pass.stash.gate_rows(), &MlpWeights::gate, &AdaptedMlp::gate);
  pass_on(pass.stash.up_rows(), &MlpWeights::up, &AdaptedMlp::up);
}

}  // namespace moesaic
