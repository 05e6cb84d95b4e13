#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/model/sequence.h"

namespace moesaic {

/// Some next tokens of one sequence.
struct SequenceChunk {
  enum class Logits { none, last, all };

  Sequence* sequence = nullptr;  // the chunk's tokens take the positions from its size() on
  std::span<const std::int32_t> tokens;
  Logits logits = Logits::last;
};

/// One token of a forward pass.
struct BatchToken {
  const Sequence* sequence = nullptr;
  std::int64_t position = 0;
};

/// Rows [first_row, first_row + num_rows) of a forward pass belong to one sequence, at the
/// positions from `position` on.
struct BatchSequence {
  const Sequence* sequence = nullptr;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t position = 0;
};

/// The chunks of a forward pass, flattened to rows: row i is tokens[i] of the rank's batch.
struct Batch {
  /// Makes it that of these chunks, in the memory that it has, and room for them in their
  /// sequences. Throws Error{usage} for a token outside the vocabulary, Error{resource} if the pool
  /// is at its limit.
  void fill(std::span<const SequenceChunk> chunks, std::int64_t vocab_size);

  std::vector<std::int32_t> token_ids;
  std::vector<BatchToken> tokens;
  std::vector<BatchSequence> sequences;
  std::vector<std::int64_t> logit_rows;

  [[nodiscard]] std::int64_t rows() const noexcept {
    return static_cast<std::int64_t>(tokens.size());
  }
};

}  // namespace moesaic
