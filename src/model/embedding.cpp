#include "src/model/embedding.h"

namespace moesaic {

void Embedding::forward(const Batch& batch, MatrixView<float> x) const {
  context_.finite_rows.begin(x.rows());
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    const std::span<float> out = x.row(row);
    weights_.embedding.read_rows(batch.token_ids[static_cast<std::size_t>(row)], 1, out);
    if (config_.embedding_multiplier != 1) {
      for (float& value : out) value *= static_cast<float>(config_.embedding_multiplier);
    }
    context_.finite_rows.look(row, FiniteRows::kEmbedding, out);
  });
}

}  // namespace moesaic
