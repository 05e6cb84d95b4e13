#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/moe/routing.h"

namespace moesaic {

/// The sending half of an exchange, a pure function of this rank's routing and the placement.
///
/// A token travels once to each other rank that owns one of its experts (a *row*). Results come
/// back one row a choice: from each peer in the order of the rows sent to it, a token's choices in
/// ascending expert id. Choices for this rank's own experts do not travel.
struct SendPlan {
  std::vector<std::int32_t> send_tokens;  // the token of each row sent, by peer, ascending in each
  std::vector<std::int64_t> send_counts;  // [ranks] rows to each peer; own rank 0
  std::vector<std::int64_t> return_counts;  // [ranks] result rows from each peer; own rank 0
  /// [choices] index among the result rows of all peers in rank order, or -1 for an own expert.
  std::vector<std::int32_t> return_rows;
};

[[nodiscard]] SendPlan make_send_plan(const Routing& routing, const ExpertPlacement& placement,
                                      int own_rank);

/// The executing half: which rows this rank's experts work on, in which order.
///
/// *Sources* are numbered: own token t is source t; received row r is source num_tokens + r.
/// *Outputs* are the products, ordered by slot; inside a slot by rank and then by row, own tokens
/// at their rank's place.
struct ExecutePlan {
  std::vector<std::int64_t> slot_begin;      // [local experts + 1] first output of each slot
  std::vector<std::int32_t> output_sources;  // [outputs] which source an output is computed from
  std::vector<std::int32_t> own_outputs;     // [choices] output of an own token's choice, or -1
  std::vector<std::int32_t> return_outputs;  // outputs to send back, by peer
  std::vector<std::int64_t> return_counts;   // [ranks] how many of them to each peer; own rank 0
};

/// The rows that other ranks sent: their expert ids [rows, topk] as they travelled (ids of other
/// ranks' experts included, ascending) and how many came from each peer.
struct ReceivedChoices {
  std::span<const std::int32_t> experts;
  std::span<const std::int64_t> counts;  // [ranks]
};

/// Throws Error{peer} if a received expert id is not one of the model's.
[[nodiscard]] ExecutePlan make_execute_plan(const Routing& own, const ReceivedChoices& received,
                                            const ExpertPlacement& placement, int own_rank);

}  // namespace moesaic
