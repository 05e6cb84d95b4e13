#pragma once

#include <cstdint>
#include <span>

#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"
#include "src/moe/choice_batch.h"
#include "src/moe/moe_context.h"
#include "src/moe/wire_form.h"

namespace moesaic {

/// Makes of experts' outputs the results that go home, and of these the sums of tokens.
class ResultSums {
 public:
  ResultSums(std::int64_t hidden, const Compute& compute) : hidden_(hidden), compute_(compute) {}

  /// How results travel.
  [[nodiscard]] WireCodec codec(const MoeContext& context) const {
    return {context.options.wire, *compute_.vector};
  }

  struct Rows {
    std::int64_t first;
    std::int64_t count;
  };
  /// These outputs of `choices` are computed: they become results, with Combine::fast once all of
  /// their part are, and leave if their exchange has been started.
  void finish_outputs(ChoiceBatch& choices, const Rows& rows, const MoeContext& context) const;
  /// Adds what ranks of this node send to this one, when all of it is here.
  void add_node_parts(ChoiceBatch& choices, const MoeContext& context) const;

  /// The results of some choices of each token: unweighted, or with Combine::fast weighted and
  /// added as far as they come from one rank or one node.
  struct Results {
    const Routing& routing;
    const ExchangePlan& plan;
    const PendingResults& home;
  };
  /// Overwrites `y` [tokens, hidden] with the sums of all of them, one after the other.
  void sum(MatrixView<float> y, std::span<const Results> parts, const MoeContext& context) const;

 private:
  void sum_parts(ChoiceBatch& choices, std::span<const std::int32_t> parts,
                 const WireCodec& codec) const;
  void encode(ChoiceBatch& choices, const Rows& rows, const WireCodec& codec) const;

  std::int64_t hidden_;
  Compute compute_;
};

}  // namespace moesaic
