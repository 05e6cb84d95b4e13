#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/moe/choice_batch.h"
#include "src/moe/row_coder.h"
#include "src/moe/wire_rows.h"

namespace moesaic {

/// Splits all choices of a layer: `deferred` gets the `count` choices of least weight of each token
/// (of equal weights those of the higher ids), `immediate` the others, both in ascending id. In a
/// row on the wire the words of `immediate` come first.
void split_routing(const Routing& all, std::int64_t count, Routing& immediate, Routing& deferred);

/// Choices that a layer has left to the sum of the next one, from their rows to their results.
struct DeferredChoices : ChoiceBatch {
  DeferredChoices(Communicator& ranks, std::int64_t hidden_bytes, std::int64_t topk)
      : ChoiceBatch(ranks), rows(ranks.make_row_memory(), hidden_bytes, topk) {}

  /// The next slot that has outputs, which count as computed from now on; nothing if none has.
  [[nodiscard]] std::optional<SlotRange> next_slot();
  /// The same for all that are left.
  [[nodiscard]] std::optional<SlotRange> remaining_slots();

  bool is_pending = false;   // results are still to be summed; the same on all ranks
  DecodedRows decoded;       // as MoeWorkspace has them
  WireRows rows;             // of this rank's tokens, where outputs are still to be computed
  PendingDispatch received;  // and those of other ranks

 private:
  friend class Deferral;
  std::size_t next_ = 0;  // the first slot that is not computed
};

/// What the layers of a pass defer: the sum of a layer takes what the layer before has left, and
/// nothing else is pending at any time.
class Deferral {
 public:
  Deferral(Communicator& ranks, std::int64_t hidden_bytes, std::int64_t topk)
      : batches_{DeferredChoices(ranks, hidden_bytes, topk),
                 DeferredChoices(ranks, hidden_bytes, topk)} {}

  /// What the layer before has left.
  [[nodiscard]] DeferredChoices& due() noexcept { return batches_[1 - now_]; }
  /// What the layer that runs leaves.
  [[nodiscard]] DeferredChoices& left() noexcept { return batches_[now_]; }
  /// Keeps the rows that outputs of left() are computed from; `rows` and `decoded` get other
  /// memory.
  void hold(WireRows& rows, DecodedRows& decoded, PendingDispatch received);
  /// due() has been summed: left() becomes due.
  void next_layer();

  Routing all;            // choices of the layer that runs, of both kinds
  ExchangePlan row_plan;  // of the rows that carry them

 private:
  std::array<DeferredChoices, 2> batches_;
  std::size_t now_ = 0;
};

}  // namespace moesaic
