#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/phase_times.h"
#include "src/lora/part_backward.h"
#include "src/moe/experts.h"
#include "src/moe/moe_stash.h"
#include "src/moe/router.h"
#include "src/moe/token_exchange.h"

namespace moesaic {

/// Rows of work that this rank's experts did.
struct ExpertLoad {
  std::int64_t rows = 0;        // outputs computed here
  std::int64_t rows_sent = 0;   // token rows that left for other ranks
  std::int64_t bytes_sent = 0;  // token rows and results that left for other ranks
};

/// What the MoE layers of one model share; all of it outlives them.
struct MoeContext {
  Communicator& experts;  // the expert-parallel group
  const ExpertPlacement& placement;
  GroupedGemm& gemm;
  TransposedGemm& transposed;
  PhaseTimes& times;
};

/// One batch on its way through an MoE layer: its plan, rows and results. One after the other the
/// layers of a model use the same; batches that are under way at the same time have one each.
struct MoeWorkspace {
  /// `hidden_bytes`: of one row's activations.
  MoeWorkspace(const MoeContext& model, std::int64_t hidden_bytes, std::int64_t topk)
      : context(model),
        rows(hidden_bytes, topk),
        exchange(model.experts, model.placement),
        gradient_rows(hidden_bytes, topk, true) {}

  /// Set before begin(), or null: what is kept for a backward pass, and where choices are counted.
  MoeStash* keep = nullptr;
  RouterStatistics* statistics = nullptr;
  RowLabel label{};  // step and layer of the batch, for its exchanges

  MoeContext context;
  Routing routing;
  RouterScratch router_scratch;
  WireRows rows;
  TokenExchange exchange;
  ExchangePlan plan;
  PendingDispatch dispatch;
  std::vector<const std::byte*> output_rows;  // [outputs] the row that each is computed from
  Buffer<float> outputs;                      // [outputs, hidden]
  PendingResults results;
  bool has_executed = false;
  ExpertLoad load;

  // Of backward passes alone.
  WireRows gradient_rows;
  std::vector<const std::byte*> gradient_output_rows;  // [outputs]
  std::vector<float> row_weights;                      // [outputs]
  std::vector<float> weight_gradients;                 // [outputs], then [choices]
  std::vector<SampleRange> samples;                    // of outputs
};

/// A batch on its way back through an MoE layer.
struct MoeBackward {
  PartBackward part;
  MoeStash& stash;  // of its forward pass, used up
};

/// The expert-parallel MoE layer: route -> dispatch -> execute -> combine. A token's result is
/// sum_k weight_k * expert_k(x), f32, in ascending expert id, whichever rank computed each part.
///
/// It runs in halves, so that a rank can do other work while rows travel: the shared expert, or
/// another batch in another workspace. Every rank makes the same calls in the same order.
class MoeLayer {
 public:
  MoeLayer(Router router, std::unique_ptr<Experts> experts, RowSource::Element element,
           const Compute& compute)
      : router_(std::move(router)),
        experts_(std::move(experts)),
        element_(element),
        compute_(compute) {}

  /// Sends the tokens of `x` [tokens, hidden], normed activations in f32, to their experts. `x` is
  /// not needed afterwards.
  void begin(MatrixView<const float> x, MoeWorkspace& work);
  /// Runs this rank's experts once their rows are here and sends the results home.
  void execute(MoeWorkspace& work);
  /// Overwrites `y` [tokens, hidden] with the sums, once the results are here; executes first if
  /// that has not been done.
  void end(MatrixView<float> y, MoeWorkspace& work);

  /// The same halves of a backward pass, on the roads of the forward pass: a token's gradient goes
  /// once to each rank of its experts, with the routing weights; an expert gives back the gradient
  /// of its input, not yet weighted, and that of the weight.
  void begin_backward(const MoeBackward& pass, MoeWorkspace& work);
  void execute_backward(const MoeBackward& pass, MoeWorkspace& work);
  /// Overwrites pass.part.dx.
  void end_backward(const MoeBackward& pass, MoeWorkspace& work);

 private:
  void write_activations(MatrixView<const float> x, WireRows& rows) const;
  void keep_probabilities(MoeWorkspace& work) const;
  static void keep_received(MoeWorkspace& work);
  static void mark_samples(std::span<const SampleRange> samples, MoeWorkspace& work);
  void gather_backward(const MoeStash& stash, MoeWorkspace& work) const;
  void add_results(MatrixView<float> y, const Routing& routing, const ExchangePlan& plan,
                   const PendingResults& results) const;

  Router router_;
  std::unique_ptr<Experts> experts_;
  RowSource::Element element_;
  Compute compute_;
};

}  // namespace moesaic
