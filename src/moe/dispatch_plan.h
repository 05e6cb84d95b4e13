#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/moe/combine.h"
#include "src/moe/routing.h"
#include "src/parallel/expert_nodes.h"

namespace moesaic {

/// The sending half of an exchange, a pure function of this rank's routing and the placement.
///
/// A token travels once to each other rank that owns one of its experts (a *row*). Results come
/// back one row a choice: from each peer in the order of the rows sent to it, a token's choices in
/// ascending expert id. Choices for this rank's own experts do not travel. With Combine::fast one
/// comes back for all choices of a row, and stands for the first of them; with several nodes one
/// for all choices of a node, from the rank that adds them (adding_rank()).
struct SendPlan {
  std::int64_t num_tokens = 0;            // of this rank
  std::vector<std::int32_t> send_tokens;  // the token of each row sent, by peer, ascending in each
  std::vector<std::int64_t> send_counts;  // [ranks] rows to each peer; own rank 0
  std::vector<std::int64_t> return_counts;  // [ranks] result rows from each peer; own rank 0
  /// [choices] index among the result rows of all peers in rank order, or -1: an own expert's, or
  /// added to that of another choice.
  std::vector<std::int32_t> return_rows;
};

/// The executing half: which rows this rank's experts work on, in which order.
///
/// *Sources* are numbered: own token t is source t; received row r is source num_tokens + r.
/// *Outputs* are the products, ordered by slot; inside a slot by rank and then by row, own tokens
/// at their rank's place.
///
/// With Combine::fast the outputs of one source are a *part*: their weighted sum takes the place of
/// the first of them, and goes home for all; with several nodes, to the rank of this node that adds
/// the parts of all.
struct ExecutePlan {
  /// Parts that ranks of this node add, each in the place of its own.
  struct NodeParts {
    std::vector<std::int32_t> send_outputs;  // parts to add elsewhere, by rank of the node
    std::vector<std::int64_t> send_counts;   // [ranks of the node] how many of them to each
    std::vector<std::int32_t> recv_outputs;  // what the parts that come are added to, by rank
    std::vector<std::int64_t> recv_counts;   // [ranks of the node] how many from each
  };

  std::vector<std::int64_t> slot_begin;      // [local experts + 1] first output of each slot
  std::vector<std::int32_t> output_sources;  // [outputs] which source an output is computed from
  std::vector<std::int32_t> output_words;    // [outputs] which of its source's choices it is
  /// [choices] output of an own token's choice, or -1: another rank's, or added to another one.
  std::vector<std::int32_t> own_outputs;
  std::vector<std::int32_t> return_outputs;  // outputs to send back, by peer
  std::vector<std::int64_t> return_counts;   // [ranks] how many of them to each peer; own rank 0
  // With Combine::fast, else empty:
  std::vector<std::int32_t> part_outputs;  // [outputs] by part, in ascending expert id
  std::vector<std::int64_t> part_begin;    // [parts + 1] first of each among them
  std::vector<std::int32_t> output_parts;  // [outputs] the part of each
  NodeParts node_parts;                    // empty where ranks of a node add nothing
  std::int64_t results_saved = 0;          // of other ranks' tokens, that are added to others

  [[nodiscard]] std::int64_t num_outputs() const noexcept {
    return static_cast<std::int64_t>(output_sources.size());
  }
};

/// Slots [first, first + count) of a rank.
struct SlotRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// An exchange as a value: whoever needs it again, such as a backward pass, keeps it. It says all
/// about the roads of the rows and nothing about what they hold.
struct ExchangePlan {
  SendPlan send;
  /// [ranks] token rows from each peer, own rank 0; empty until the first of them are here.
  std::vector<std::int64_t> recv_counts;
  ExecutePlan execute;
};

/// The rows that other ranks sent: their expert ids [rows, topk] as they travelled (ids of other
/// ranks' experts included, ascending) and how many came from each peer.
struct ReceivedChoices {
  std::span<const ExpertId> experts;
  std::span<const std::int64_t> counts;  // [ranks]
};

/// Makes the plans of one rank. Plans are overwritten, so that their memory is used again.
class DispatchPlanner {
 public:
  /// `placement` and `nodes` must outlive this. All ranks have the same `combine`; with
  /// Combine::fast ranks of a node add their parts if `nodes` is not null.
  DispatchPlanner(const ExpertPlacement& placement, int own_rank,
                  Combine combine = Combine::ordered, const NodeMap* nodes = nullptr)
      : placement_(&placement), own_rank_(own_rank), combine_(combine), nodes_(nodes) {}

  /// Plans are of this placement from now on, which must outlive this.
  void place(const ExpertPlacement& placement) { placement_ = &placement; }

  void plan_sends(const Routing& routing, SendPlan& plan);
  /// Throws Error{peer} if a received expert id is not one of the model's.
  void plan_execution(const Routing& own, const ReceivedChoices& received, ExecutePlan& plan);

 private:
  /// A part, and the rank of this node to which or from which it goes.
  struct NodePart {
    int rank;
    std::int32_t output;
  };

  /// Who has the result for what `rank` has of a token: itself, or who adds those of its node.
  [[nodiscard]] int rank_of_sum(const TokenChoices& token, int rank) const;
  [[nodiscard]] std::size_t place_of_sum(const TokenChoices& token, std::int64_t choice) const;
  void add_node_part(const TokenChoices& token, int adding, std::int32_t output);
  void write_node_parts(ExecutePlan::NodeParts& plan) const;

  const ExpertPlacement* placement_;
  int own_rank_;
  Combine combine_;
  const NodeMap* nodes_;
  // Scratch:
  std::vector<std::int64_t> next_;        // the next row of each peer, or output of each slot
  std::vector<std::int64_t> returns_;     // the next result row of each peer
  std::vector<std::int64_t> last_token_;  // [ranks] the last token that a row goes there of
  std::vector<NodePart> leaving_;         // parts that another rank of the node adds
  std::vector<NodePart> coming_;          // parts of others, by the output they are added to
};

}  // namespace moesaic
