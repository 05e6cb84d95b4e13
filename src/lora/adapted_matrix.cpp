#include "src/lora/adapted_matrix.h"

#include <algorithm>

namespace moesaic {
namespace {

MatrixView<float> rows_of_rank(Buffer<float>& buffer, std::int64_t rows, const Adapter& adapter) {
  buffer.reserve(rows * adapter.rank());
  return buffer.matrix(rows, adapter.rank());
}

/// Whether the factors of all parts are multiplied as one: not with dropout, of which each part has
/// its own, nor where scales differ.
bool runs_as_one(const Adapter& adapter, const Dropout& dropout) {
  return !dropout.is_on() && std::ranges::all_of(adapter.parts, [&](const Adapter& part) {
    return part.scale == adapter.scale;
  });
}

/// call(rows, columns): all rows of a pass with its adapter, or with each part of it, and the
/// columns of `inner` that are for these.
template <typename Pass, typename Call>
void for_each_run(const Pass& pass, MatrixView<float> inner, const Call& call) {
  const std::int64_t rows = pass.x.num_rows;
  if (runs_as_one(*pass.adapter, pass.dropout)) {
    return call(AdapterRows{.num_rows = rows, .adapter = pass.adapter}, inner);
  }
  for_each_part(*pass.adapter, [&](const Adapter& part, std::int64_t first) {
    call(AdapterRows{.num_rows = rows, .adapter = &part}, columns_of(inner, first, part.rank()));
  });
}

}  // namespace

/// inner = scale x A^T.
template <typename Pass>
void MatrixProducts::project(const Pass& pass, MatrixView<float> inner) {
  for_each_run(pass, inner, [&](const AdapterRows& rows, MatrixView<float> columns) {
    adapters_.project(pass.x, {&rows, 1}, columns, pass.dropout);
  });
}

void MatrixProducts::forward(const MatrixForward& pass) {
  GemmGroup group{
      .num_rows = pass.x.num_rows, .weights = pass.weights, .epilogue = {.bias = pass.bias}};
  if (pass.adapter != nullptr) {
    const Adapter& adapter = *pass.adapter;
    const MatrixView<float> inner = rows_of_rank(inner_, pass.x.num_rows, adapter);
    const bool projects =
        runs_as_one(adapter, pass.dropout) && can_project(pass.weights, adapter.a);
    if (!projects) project(pass, inner);
    group.epilogue.low_rank = forward_terms(adapter, inner, projects);
  }
  gemm_.run(pass.x, {&group, 1}, output_of(pass.y));
}

/// dx = dy W + back A; `back` is overwritten.
void MatrixProducts::pass_back(const MatrixBackward& pass, MatrixView<float> back) {
  const Adapter& adapter = *pass.adapter;
  const bool along = goes_along(pass.weights, pass.dropout);
  const bool projects = along && runs_as_one(adapter, pass.dropout) &&
                        TransposedGemm::can_project(pass.weights, adapter.b);
  if (!projects) {
    for_each_run(pass, back, [&](const AdapterRows& rows, MatrixView<float> columns) {
      adapters_.project_back(pass.dy, {&rows, 1}, columns, pass.dropout);
    });
  }
  GemmGroup group{.num_rows = pass.dy.num_rows, .weights = pass.weights};
  if (along) group.epilogue.low_rank = backward_terms(adapter, back, projects);
  adapters_.transposed().run(pass.dy, {&group, 1}, output_of(pass.dx));
  if (along) return;
  for_each_run(pass, back, [&](const AdapterRows& rows, MatrixView<float> columns) {
    adapters_.pass_back(columns, {&rows, 1}, pass.dx, pass.dropout);
  });
}

void MatrixProducts::add_gradients(const MatrixBackward& pass, MatrixView<float> back,
                                   AdapterGradients& gradients) {
  const Adapter& adapter = *pass.adapter;
  const MatrixView<float> inner = rows_of_rank(inner_, pass.x.num_rows, adapter);
  project(pass, inner);
  const auto add = [&](const Adapter& part, std::int64_t first) {
    const AdapterRows all{.num_rows = pass.x.num_rows, .adapter = &part};
    adapters_.add_gradients({.x = pass.x,
                             .dy = pass.dy,
                             .inner = columns_of(inner, first, part.rank()),
                             .back = columns_of(back, first, part.rank()),
                             .samples = pass.samples,
                             .dropout = pass.dropout},
                            {&all, 1}, gradients);
  };
  if (pass.dropout.is_on()) return for_each_part(adapter, add);
  add(adapter, 0);
}

void MatrixProducts::backward(const MatrixBackward& pass, AdapterGradients& gradients) {
  if (pass.adapter == nullptr) {
    const GemmGroup group{.num_rows = pass.dy.num_rows, .weights = pass.weights};
    return adapters_.transposed().run(pass.dy, {&group, 1}, output_of(pass.dx));
  }
  const MatrixView<float> back = rows_of_rank(back_, pass.dy.num_rows, *pass.adapter);
  pass_back(pass, back);
  add_gradients(pass, back, gradients);
}

}  // namespace moesaic
