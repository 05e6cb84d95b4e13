#include "src/model/linear.h"

namespace moesaic {
namespace {

GemmOutput float_output(MatrixView<float> y) {
  return {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = y.stride() * 4};
}

}  // namespace

void Linear::forward(const Weight& weight, std::span<const float> bias, MatrixView<const float> x,
                     MatrixView<float> y) {
  const RowSource rows = x_rows_.of(x);
  const GemmGroup group{.num_rows = x.rows(),
                        .weights = weight.matrix,
                        .epilogue = {.bias = bias.empty() ? nullptr : bias.data()}};
  gemm_.run(rows, {&group, 1}, float_output(y));
  for (const Adapter& adapter : weight.adapters) {
    const AdapterRows all{.num_rows = x.rows(), .adapter = &adapter};
    adapters_.add_forward(rows, {&all, 1}, y, dropout_);
  }
}

void Linear::backward(const Weight& weight, const PartBackward& part) {
  const RowSource dy = dy_rows_.of(part.dy);
  const RowSource x = x_rows_.of(part.x);
  const GemmGroup group{.num_rows = dy.num_rows, .weights = weight.matrix};
  adapters_.transposed().run(dy, {&group, 1}, float_output(part.dx));
  for (const Adapter& adapter : weight.adapters) {
    const AdapterRows all{.num_rows = dy.num_rows, .adapter = &adapter};
    adapters_.add_backward(
        {.x = x, .dy = dy, .dx = part.dx, .samples = part.samples, .dropout = dropout_}, {&all, 1},
        part.adapters);
  }
}

void Linear::gated_mlp(const AdaptedMlp& mlp, MatrixView<const float> x, MatrixView<float> y,
                       MlpStash* keep) {
  const MlpRows all{.num_rows = x.rows(), .mlp = &mlp};
  mlps_.forward(
      {.x = x_rows_.of(x), .groups = {&all, 1}, .y = y, .keep = keep, .dropout = dropout_});
}

void Linear::add_input_gradient(const Weight& weight, MatrixView<const float> dy,
                                MatrixView<float> dx) {
  const GemmGroup group{
      .num_rows = dy.rows(), .weights = weight.matrix, .epilogue = {.addend = dx}};
  adapters_.transposed().run(dy_rows_.of(dy), {&group, 1}, float_output(dx));
}

void Linear::gated_mlp_backward(const AdaptedMlp& mlp, const PartBackward& part, MlpStash& stash,
                                const RowWeights& rows) {
  const MlpRows all{.num_rows = part.x.rows(), .mlp = &mlp};
  mlps_.backward({.x = x_rows_.of(part.x),
                  .groups = {&all, 1},
                  .dy = dy_rows_.of(part.dy),
                  .row_weights = rows.weights,
                  .stash = stash,
                  .dx = part.dx,
                  .weight_gradients = rows.gradients,
                  .samples = part.samples,
                  .dropout = dropout_},
                 part.adapters);
}

}  // namespace moesaic
