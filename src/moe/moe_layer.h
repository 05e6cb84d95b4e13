#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/phase_times.h"
#include "src/moe/experts.h"
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
  PhaseTimes& times;
};

/// One batch on its way through an MoE layer: its plan, rows and results. One after the other the
/// layers of a model use the same; batches that are under way at the same time have one each.
struct MoeWorkspace {
  /// `hidden_bytes`: of one row's activations.
  MoeWorkspace(const MoeContext& model, std::int64_t hidden_bytes, std::int64_t topk)
      : context(model), rows(hidden_bytes, topk), exchange(model.experts, model.placement) {}

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

 private:
  void write_rows(MatrixView<const float> x, MoeWorkspace& work) const;
  void add_results(MatrixView<float> y, const MoeWorkspace& work) const;

  Router router_;
  std::unique_ptr<Experts> experts_;
  RowSource::Element element_;
  Compute compute_;
};

}  // namespace moesaic
