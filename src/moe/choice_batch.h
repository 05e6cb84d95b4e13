#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/row_memory.h"
#include "src/moe/dispatch_plan.h"
#include "src/moe/experts.h"
#include "src/moe/node_sums.h"
#include "src/moe/part_queue.h"
#include "src/moe/routing.h"
#include "src/moe/token_exchange.h"

namespace moesaic {

/// Choices of a batch on their way: which they are, what this rank's experts compute for them and
/// for those of other ranks, and the results that come home.
struct ChoiceBatch {
  /// `ranks`: where results go.
  explicit ChoiceBatch(Communicator& ranks)
      : outputs(ranks.make_row_memory()), coded(ranks.make_row_memory()) {}

  Routing routing;
  ExchangePlan plan;
  Experts* experts = nullptr;                 // of their layer
  InputChoices inputs;                        // with Experts::plans_itself()
  std::vector<const std::byte*> output_rows;  // [outputs] the row that each is computed from
  std::vector<std::uint64_t> output_keys;     // [outputs] and its key, with dropout
  std::vector<float> output_weights;          // [outputs] its weight, with Combine::fast
  PartQueue parts;                            // of outputs, with Combine::fast
  NodeSums node_sums;                         // of parts, where ranks of a node add theirs
  SentRows<float> outputs;                    // [outputs, hidden]
  SentRows<std::byte> coded;  // [outputs, bytes] the same in the form of the wire, if not f32
  PendingResults results;
};

}  // namespace moesaic
