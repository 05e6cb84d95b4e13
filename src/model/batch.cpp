#include "src/model/batch.h"

#include "base/error.h"

namespace moesaic {

void Batch::fill(std::span<const SequenceChunk> chunks, std::int64_t vocab_size) {
  token_ids.clear();
  tokens.clear();
  sequences.clear();
  logit_rows.clear();
  for (const SequenceChunk& chunk : chunks) {
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    const std::int64_t start = chunk.sequence->size();
    chunk.sequence->ensure(start + count);
    sequences.push_back({chunk.sequence, rows(), count, start});
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t id = chunk.tokens[static_cast<std::size_t>(i)];
      require(id >= 0 && id < vocab_size, ErrorKind::usage,
              "token id {} is outside the model's vocabulary of {}", id, vocab_size);
      const bool wanted = chunk.logits == SequenceChunk::Logits::all ||
                          (chunk.logits == SequenceChunk::Logits::last && i == count - 1);
      if (wanted) logit_rows.push_back(rows());
      token_ids.push_back(id);
      tokens.push_back({chunk.sequence, start + i});
    }
  }
}

}  // namespace moesaic
