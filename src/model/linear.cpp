#include "src/model/linear.h"

namespace moesaic {
void Linear::forward(const Weight& weight, std::span<const float> bias, MatrixView<const float> x,
                     MatrixView<float> y) {
  matrices_.forward({.x = x_rows_.of(x),
                     .weights = weight.matrix,
                     .adapter = weight.adapter,
                     .bias = bias.empty() ? nullptr : bias.data(),
                     .y = y,
                     .dropout = dropout_});
}

void Linear::backward(const Weight& weight, const PartBackward& part) {
  matrices_.backward({.x = x_rows_.of(part.x),
                      .weights = weight.matrix,
                      .adapter = weight.adapter,
                      .dy = dy_rows_.of(part.dy),
                      .dx = part.dx,
                      .samples = part.samples,
                      .dropout = dropout_},
                     part.adapters);
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
  adapters_.transposed().run(dy_rows_.of(dy), {&group, 1}, output_of(dx));
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
