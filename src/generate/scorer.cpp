#include "src/generate/scorer.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace moesaic {

ScoreResult score(Transformer& transformer, Communicator& world,
                  std::span<const std::int32_t> tokens, std::int64_t batch_tokens,
                  const LogitsSink& sink) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  require(length >= 2, ErrorKind::usage, "a text of {} tokens has nothing to predict", length);
  require(batch_tokens >= 1, ErrorKind::usage, "--batch-size must be at least 1, not {}",
          batch_tokens);
  const auto start = std::chrono::steady_clock::now();
  const bool owner = world.rank() == 0;
  KvPool pool(transformer.config(), transformer.precision());
  Sequence sequence = pool.make_sequence(length);
  double loss = 0;
  for (std::int64_t first = 0; first < length; first += batch_tokens) {
    const std::int64_t count = std::min(batch_tokens, length - first);
    const SequenceChunk chunk{
        .sequence = &sequence,
        .tokens = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
        .logits = SequenceChunk::Logits::all};
    const MatrixView<const float> logits =
        transformer.forward(std::span(&chunk, owner ? std::size_t{1} : std::size_t{0}));
    if (owner && sink) sink(first, logits);
    for (std::int64_t row = 0; row < logits.rows() && first + row + 1 < length; ++row) {
      const std::int32_t target = tokens[static_cast<std::size_t>(first + row + 1)];
      const float log_sum =
          transformer.compute().vector->log_sum_exp(logits.row(row).data(), logits.cols());
      loss += static_cast<double>(log_sum) - static_cast<double>(logits(row, target));
    }
  }
  double mean_loss = loss / static_cast<double>(length - 1);
  world.broadcast(std::as_writable_bytes(std::span(&mean_loss, 1)), 0);
  return {
      .mean_loss = mean_loss,
      .predicted_tokens = length - 1,
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace moesaic
