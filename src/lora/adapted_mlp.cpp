#include "src/lora/adapted_mlp.h"

#include <algorithm>
#include <numeric>

namespace moesaic {
namespace {

const Adapter* adapter_of(const AdaptedMlp& mlp, MlpPart part) {
  if (part == MlpPart::gate) return mlp.gate;
  return part == MlpPart::up ? mlp.up : mlp.down;
}

const PackedMatrix& matrix_of(const AdaptedMlp& mlp, MlpPart part) {
  if (part == MlpPart::gate) return mlp.weights.gate;
  return part == MlpPart::up ? mlp.weights.up : mlp.weights.down;
}

/// Whether inner rows are made before the product with `weights`, not by it: all with dropout, of
/// which products know nothing.
auto is_apart(const Dropout& dropout) {
  return [drops = dropout.is_on()](const PackedMatrix& weights, const Adapter& adapter) {
    return drops || !can_project(weights, adapter.a);
  };
}

/// What an adapter adds to a product with `weights`; nothing without one. Where it can, the product
/// makes the inner rows itself.
LowRank low_rank(const Adapter* adapter, const PackedMatrix& weights,
                 const MatrixView<float>& inner, const Dropout& dropout) {
  if (adapter == nullptr) return {};
  return forward_terms(*adapter, inner, !is_apart(dropout)(weights, *adapter));
}

/// Whether gradients of gate and up are rounded to bf16 as they come.
bool are_rounded(std::span<const MlpRows> groups) {
  return std::ranges::all_of(groups, [](const MlpRows& group) {
    const MlpWeights& weights = group.mlp->weights;
    return TransposedGemm::rounds_rows(weights.gate) && TransposedGemm::rounds_rows(weights.up);
  });
}

const Gating& gating_of(std::span<const MlpRows> groups) {
  return groups.front().mlp->gating;
}

/// Of a row and a vector; element i is added in lane i % 16, the lanes one after the other.
template <typename Element, typename ToFloat>
float product_of(const Element* row, const float* by, std::int64_t n, const ToFloat& value) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t lanes = std::min(kLanes, n - i);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += value(row[i + lane]) * by[i + lane];
    }
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

float product_of(const RowSource& rows, std::int64_t row, const float* by) {
  const std::byte* const values = rows.rows[row];
  if (rows.element == RowSource::Element::f32) {
    return product_of(reinterpret_cast<const float*>(values), by, rows.depth,
                      [](float value) { return value; });
  }
  return product_of(reinterpret_cast<const BFloat16*>(values), by, rows.depth,
                    [](BFloat16 value) { return to_float(value); });
}

constexpr auto kIsAny = [](const PackedMatrix&, const Adapter&) { return true; };

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

/// The groups whose MLP has this adapter, if wanted(matrix, adapter).
template <typename Wanted>
std::span<const AdapterRows> MlpProducts::adapted(std::span<const MlpRows> groups, MlpPart part,
                                                  const Wanted& wanted) {
  adapter_rows_.clear();
  for (const auto& [first, count, mlp] : groups) {
    const Adapter* const adapter = adapter_of(*mlp, part);
    if (adapter != nullptr && wanted(matrix_of(*mlp, part), *adapter)) {
      adapter_rows_.push_back({first, count, adapter});
    }
  }
  return adapter_rows_;
}

void MlpProducts::make_groups(const MlpForward& pass, const MlpStash& inner) {
  for (const MlpPart part : {MlpPart::gate, MlpPart::up}) {
    adapters_.project(pass.x, adapted(pass.groups, part, is_apart(pass.dropout)), inner.inner(part),
                      pass.dropout);
  }
  mlp_groups_.clear();
  for (const auto& [first, count, mlp] : pass.groups) {
    mlp_groups_.push_back({.first_row = first, .num_rows = count, .weights = mlp->weights});
    MlpGroup& group = mlp_groups_.back();
    const MlpWeights& weights = mlp->weights;
    const auto added = [&](const Adapter* adapter, const PackedMatrix& matrix, MlpPart part) {
      return low_rank(adapter, matrix, inner.inner(part), pass.dropout);
    };
    group.gate_epilogue.low_rank = added(mlp->gate, weights.gate, MlpPart::gate);
    group.up_epilogue.low_rank = added(mlp->up, weights.up, MlpPart::up);
    group.down_epilogue.low_rank = added(mlp->down, weights.down, MlpPart::down);
    group.gate_epilogue.bias = mlp->biases.gate;
    group.up_epilogue.bias = mlp->biases.up;
    group.down_epilogue.bias = mlp->biases.down;
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
  const MatrixView<float> down = stash.inner(MlpPart::down);
  if (pass.y.cols() == 0) {
    const RowSource rows = run_gated(pass);
    adapters_.project(rows, adapted(pass.groups, MlpPart::down, kIsAny), down, pass.dropout);
  } else if (adapted(pass.groups, MlpPart::down, is_apart(pass.dropout)).empty()) {
    gemm_.run_mlp(pass.x, mlp_groups_, gating_of(pass.groups), output_of(pass.y));
  } else {
    const RowSource rows = run_gated(pass);
    adapters_.project(rows, adapted(pass.groups, MlpPart::down, is_apart(pass.dropout)), down,
                      pass.dropout);
    gemm_groups_.clear();
    for (const auto& [first, count, mlp] : pass.groups) {
      gemm_groups_.push_back(
          {.first_row = first,
           .num_rows = count,
           .weights = mlp->weights.down,
           .epilogue = {.low_rank = low_rank(mlp->down, mlp->weights.down, down, pass.dropout),
                        .bias = mlp->biases.down}});
    }
    gemm_.run(rows, gemm_groups_, output_of(pass.y));
  }
}

/// The gated activations, which wait in memory: adapters of down projections that their products
/// cannot run need whole rows of them.
RowSource MlpProducts::run_gated(const MlpForward& pass) {
  const std::int64_t width = pass.groups.front().mlp->weights.gate.rows;
  const std::int64_t row_bytes = width * element_bytes(pass.x.element);
  activations_.reserve(pass.x.num_rows * row_bytes);
  gemm_.run_gated(
      pass.x, mlp_groups_, gating_of(pass.groups),
      {.data = activations_.data(), .stride_bytes = row_bytes, .element = pass.x.element});
  return activation_rows_.packed(activations_.data(), pass.x.num_rows, width, pass.x.element);
}

/// dy W + back A of one matrix, if adapters go along.
void MlpProducts::make_back_groups(const Step& step, const MlpBackward& pass,
                                   std::vector<GemmGroup>& products) {
  const MatrixView<float> inner = back(step.part, step.dy.num_rows);
  const auto is_projected_apart = [&](const PackedMatrix& matrix, const Adapter& adapter) {
    return !goes_along(matrix, pass.dropout) || !TransposedGemm::can_project(matrix, adapter.b);
  };
  adapters_.project_back(step.dy, adapted(pass.groups, step.part, is_projected_apart), inner,
                         pass.dropout);
  products.clear();
  for (const auto& [first, count, mlp] : pass.groups) {
    const Adapter* const adapter = adapter_of(*mlp, step.part);
    const PackedMatrix& matrix = matrix_of(*mlp, step.part);
    products.push_back({.first_row = first, .num_rows = count, .weights = matrix});
    if (adapter == nullptr || !goes_along(matrix, pass.dropout)) continue;
    products.back().epilogue.low_rank =
        backward_terms(*adapter, inner, !is_projected_apart(matrix, *adapter));
  }
}

/// dx = the sum of what the steps pass back.
void MlpProducts::pass_back(std::span<const Step> steps, const MlpBackward& pass,
                            MatrixView<float> dx) {
  std::array<TransposedProduct, 2> products;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    make_back_groups(steps[i], pass, back_groups_[i]);
    products[i] = {steps[i].dy, back_groups_[i]};
  }
  adapters_.transposed().run(std::span(products).first(steps.size()), output_of(dx));
  const auto goes_apart = [&](const PackedMatrix& matrix, const Adapter&) {
    return !goes_along(matrix, pass.dropout);
  };
  for (const Step& step : steps) {
    adapters_.pass_back(back(step.part, dx.rows()), adapted(pass.groups, step.part, goes_apart), dx,
                        pass.dropout);
  }
}

/// Gradients of the gated activations become these, gate and up their gradients: in bf16, where
/// they lie, if products would round them first of all.
void MlpProducts::pass_back_gating(const MlpBackward& pass, MatrixView<float> inner) {
  const MatrixView<float> gate = pass.stash.gate_rows();
  const MatrixView<float> up = pass.stash.up_rows();
  const VectorKernels& vector = *compute_.vector;
  const Gating& gating = gating_of(pass.groups);
  const auto gradient = are_rounded(pass.groups) ? vector.gate_gradient_bf16 : vector.gate_gradient;
  compute_.pool->for_each_row(inner.rows(), [&](std::int64_t row) {
    const GatedRow its{gate.row(row).data(), up.row(row).data(), inner.row(row).data()};
    const float product = gradient(gating, its, inner.cols());
    if (pass.weight_gradients != nullptr) pass.weight_gradients[row] = product;
  });
}

/// A down projection's bias has a share of <dy, y>.
void MlpProducts::add_bias_products(const MlpBackward& pass) const {
  if (pass.weight_gradients == nullptr) return;
  for (const auto& [first, count, mlp] : pass.groups) {
    if (mlp->biases.down == nullptr) continue;
    compute_.pool->for_each_row(count, [&, first = first, bias = mlp->biases.down](auto row) {
      pass.weight_gradients[first + row] += product_of(pass.dy, first + row, bias);
    });
  }
}

void MlpProducts::add_gradients(const Step& step, const MlpBackward& pass,
                                AdapterGradients& gradients) {
  adapters_.add_gradients({.x = step.x,
                           .dy = step.dy,
                           .inner = pass.stash.inner(step.part),
                           .back = back(step.part, step.dy.num_rows),
                           .row_weights = pass.row_weights,
                           .samples = pass.samples,
                           .dropout = pass.dropout},
                          adapted(pass.groups, step.part, kIsAny), gradients);
}

void MlpProducts::backward(const MlpBackward& pass, AdapterGradients& gradients) {
  if (pass.groups.empty()) return;
  const std::int64_t rows = pass.x.num_rows;
  rank_ = greatest_rank(pass.groups);
  for (Buffer<float>& back : back_) back.reserve(rows * rank_);
  inner_.reserve(rows * pass.stash.width());
  const MatrixView<float> inner = inner_.matrix(rows, pass.stash.width());
  const auto rows_of = [rounded = are_rounded(pass.groups)](MatrixRows& rows_in,
                                                            const MatrixView<float>& matrix) {
    return rounded ? rows_in.of_rounded(matrix) : rows_in.of(matrix);
  };
  const Step down{.part = MlpPart::down, .x = rows_of(inner_rows_, inner), .dy = pass.dy};
  pass_back({&down, 1}, pass, inner);
  pass_back_gating(pass, inner);
  add_bias_products(pass);
  add_gradients(down, pass, gradients);

  const std::array<Step, 2> steps = {
      Step{MlpPart::gate, pass.x, rows_of(gate_rows_, pass.stash.gate_rows())},
      Step{MlpPart::up, pass.x, rows_of(up_rows_, pass.stash.up_rows())}};
  pass_back(steps, pass, pass.dx);
  for (const Step& step : steps) add_gradients(step, pass, gradients);
}

}  // namespace moesaic
