#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "src/moe/experts.h"
#include "src/moe/moe_workspace.h"
#include "src/moe/result_sums.h"
#include "src/moe/router.h"
#include "src/moe/row_coder.h"

namespace moesaic {

class DeviceRoad;

/// A batch on its way back through an MoE layer.
struct MoeBackward {
  PartBackward part;
  MoeStash& stash;  // of its forward pass, used up
};

/// The expert-parallel MoE layer: route -> dispatch -> execute -> combine. A token's result is
/// sum_k weight_k * expert_k(x), f32, in ascending expert id, whichever rank computed each part;
/// what the layer before has deferred comes first. With Combine::fast it is the sum of such sums
/// over the experts of a rank, with several nodes of sums of these over the ranks of a node, in
/// ascending order of the lowest expert of each.
///
/// It runs in halves, so that a rank can do other work while rows travel: the shared expert, or
/// another batch in another workspace. Every rank makes the same calls in the same order.
class MoeLayer {
 public:
  MoeLayer(Router router, std::unique_ptr<Experts> experts, RowSource::Element element,
           const Compute& compute)
      : router_(std::move(router)),
        experts_(std::move(experts)),
        rows_(router_.hidden(), element, compute),
        sums_(router_.hidden(), compute),
        compute_(compute) {}

  /// Says that products of all experts, also of other ranks, make the same codes of a row.
  void take_int8(const Int8Rows& codes) { rows_.take_int8(codes); }

  /// Batches go this way whose experts are all on GPUs: with several ranks all do. Then nothing is
  /// deferred, rounded or kept for a backward pass, and one batch at a time is under way.
  void take_road(DeviceRoad& road) { road_ = &road; }

  /// Sends the tokens of `x` [tokens, hidden], normed activations in f32, to their experts. `x` is
  /// not needed afterwards.
  void begin(MatrixView<const float> x, MoeWorkspace& work);
  /// Runs this rank's experts once their rows are here and sends the results home. Until then it
  /// runs what the layer before has deferred. Between nodes an expert runs as soon as its own rows
  /// are here, and results leave in pieces.
  void execute(MoeWorkspace& work);
  /// Overwrites `y` [tokens, hidden] with the sums, once the results are here (with keeps_alone,
  /// not at all: it is null); executes first if that has not been done. Until they are here it runs
  /// what this layer defers.
  void end(MatrixView<float> y, MoeWorkspace& work);

  /// The same halves of a backward pass, on the roads of the forward pass: a token's gradient goes
  /// once to each rank of its experts, with the routing weights; an expert gives back the gradient
  /// of its input, not yet weighted, and that of the weight.
  void begin_backward(const MoeBackward& pass, MoeWorkspace& work);
  void execute_backward(const MoeBackward& pass, MoeWorkspace& work);
  /// Overwrites pass.part.dx.
  void end_backward(const MoeBackward& pass, MoeWorkspace& work);

 private:
  void choose(MatrixView<const float> x, MoeWorkspace& work) const;
  void count_choices(MoeWorkspace& work) const;
  void keep_scores(MoeWorkspace& work) const;
  [[nodiscard]] PendingDispatch send_rows(MoeWorkspace& work) const;

  void finish_plans(MoeWorkspace& work);
  void finish_plan(ChoiceBatch& choices, MoeWorkspace& work);
  void list_inputs(ChoiceBatch& choices, const MoeWorkspace& work) const;
  void tell_placement(const MoeWorkspace& work) const;
  /// As products take it.
  [[nodiscard]] const std::byte* row_of_source(std::int64_t source, const MoeWorkspace& work) const;
  void decode_rows(std::span<const std::int32_t> sources, MoeWorkspace& work) const;
  void decode_inputs(SlotRange slots, MoeWorkspace& work) const;

  void compute(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const;
  /// Some outputs of `choices`, which leave at once.
  void compute_and_send(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const;
  void compute_as_rows_come(MoeWorkspace& work) const;
  void compute_while_waiting(DeferredChoices& deferred, MoeWorkspace& work,
                             const std::function<bool()>& is_done) const;
  void send_results(ChoiceBatch& choices, TokenExchange::Outputs when, MoeWorkspace& work) const;

  [[nodiscard]] bool goes_by_road(const Routing& routing) const;
  void begin_on_road(MatrixView<const float> x, MoeWorkspace& work) const;
  void execute_on_road(MoeWorkspace& work) const;
  void end_on_road(MatrixView<float> y, const MoeWorkspace& work) const;

  Router router_;
  std::unique_ptr<Experts> experts_;
  RowCoder rows_;
  ResultSums sums_;
  Compute compute_;
  DeviceRoad* road_ = nullptr;  // null: all go over the memory of hosts
};

}  // namespace moesaic
