#pragma once

#include <optional>
#include <vector>

#include "src/moe/expert_executor.h"
#include "src/moe/router.h"
#include "src/moe/token_exchange.h"

namespace moesaic {

/// Rows of work that this rank's experts did.
struct ExpertLoad {
  std::int64_t rows = 0;        // outputs computed here
  std::int64_t rows_sent = 0;   // token rows that left for other ranks
  std::int64_t bytes_sent = 0;  // token rows and results that left for other ranks
};

/// Memory and transport that the MoE layers of one model share.
struct MoeWorkspace {
  MoeWorkspace(Communicator& experts, const ExpertPlacement& placement, std::int64_t hidden_bytes,
               std::int64_t topk)
      : rows(hidden_bytes, topk), exchange(experts, placement) {}

  WireRows rows;
  Routing routing;
  TokenExchange exchange;
  ExpertScratch expert_scratch;
  Buffer<float> outputs;  // [outputs, hidden]
  ExpertLoad load;
};

/// The expert-parallel MoE layer: route -> dispatch -> execute -> combine. A token's result is
/// sum_k weight_k * expert_k(x), f32, in ascending expert id, whichever rank computed each part.
class MoeLayer {
 public:
  MoeLayer(Router router, ExpertExecutor executor, RowSource::Element element,
           const Compute& compute)
      : router_(std::move(router)),
        executor_(std::move(executor)),
        element_(element),
        compute_(compute) {}

  /// `x` [tokens, hidden] normed activations, f32; `y` [tokens, hidden] is overwritten. `meanwhile`
  /// runs while rows travel, whatever the rank count. Collective over the expert-parallel group.
  template <typename Meanwhile>
  void forward(MatrixView<const float> x, MatrixView<float> y, GroupedGemm& gemm,
               MoeWorkspace& work, PhaseTimes& times, Meanwhile&& meanwhile) {
    route(x, gemm, work, times);
    work.exchange.start_dispatch(work.rows, work.routing, times);
    meanwhile();
    execute_and_combine(y, gemm, work, times);
  }

 private:
  void route(MatrixView<const float> x, GroupedGemm& gemm, MoeWorkspace& work, PhaseTimes& times);
  void execute_and_combine(MatrixView<float> y, GroupedGemm& gemm, MoeWorkspace& work,
                           PhaseTimes& times);

  Router router_;
  ExpertExecutor executor_;
  RowSource::Element element_;
  Compute compute_;
};

}  // namespace moesaic
