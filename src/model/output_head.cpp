#include "src/model/output_head.h"

namespace moesaic {

void OutputHead::forward(MatrixView<const float> x, std::span<const std::int64_t> rows,
                         MatrixView<float> normed, MatrixView<float> logits) const {
  context_.for_each_row(std::ssize(rows), [&](std::int64_t i) {
    const float* const row = x.row(rows[static_cast<std::size_t>(i)]).data();
    context_.compute.vector->rms_norm(row, weights_.final_norm.data(), context_.config.epsilon,
                                      x.cols(), normed.row(i).data());
  });
  context_.linear.forward({weights_.lm_head}, {}, normed, logits);
  if (config_.logits_scaling == 1) return;
  context_.for_each_row(std::ssize(rows), [&](std::int64_t i) {
    for (float& value : logits.row(i)) value /= static_cast<float>(config_.logits_scaling);
  });
}

}  // namespace moesaic
