#include "src/model/batch.h"

#include "base/error.h"

namespace moesaic {

Batch make_batch(std::span<const SequenceChunk> chunks, std::int64_t vocab_size) {
  Batch batch;
  for (const SequenceChunk& chunk : chunks) {
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    const std::int64_t start = chunk.sequence->size();
    chunk.sequence->ensure(start + count);
    batch.sequences.push_back({chunk.sequence, batch.rows(), count, start});
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t id = chunk.tokens[static_cast<std::size_t>(i)];
      require(id >= 0 && id < vocab_size, ErrorKind::usage,
              "token id {} is outside the model's vocabulary of {}", id, vocab_size);
      const bool wanted = chunk.logits == SequenceChunk::Logits::all ||
                          (chunk.logits == SequenceChunk::Logits::last && i == count - 1);
      if (wanted) batch.logit_rows.push_back(batch.rows());
      batch.token_ids.push_back(id);
      batch.tokens.push_back({chunk.sequence, start + i});
    }
  }
  return batch;
}

}  // namespace moesaic
