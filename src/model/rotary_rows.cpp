#include "src/model/rotary_rows.h"

namespace moesaic {

void RotaryRows::begin(const Batch& batch, ThreadPool& pool) {
  const std::int64_t half = rotary_.half();
  cosines_.reserve(batch.rows() * half);
  sines_.reserve(batch.rows() * half);
  pool.for_each_row(batch.rows(), [&](std::int64_t row) {
    const BatchToken& token = batch.tokens[static_cast<std::size_t>(row)];
    rotary_.angles(token.position, token.sequence->rope_length(token.position),
                   {cosines_.data() + row * half, static_cast<std::size_t>(half)},
                   {sines_.data() + row * half, static_cast<std::size_t>(half)});
  });
}

}  // namespace moesaic
