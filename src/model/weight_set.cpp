#include "src/model/weight_set.h"

#include "base/error.h"

namespace moesaic {
namespace {

const Adapter* adapter_of(const Weight& weight) {
  const Adapter* const adapter = weight.adapter;
  if (adapter == nullptr) return nullptr;
  require(adapter->parts.empty() && adapter->b.rows == weight.matrix.rows &&
              adapter->a.depth == weight.matrix.depth,
          ErrorKind::internal, "an adapter {} x {} of {} parts for a matrix {} x {} of an MLP",
          adapter->b.rows, adapter->a.depth, adapter->parts.size(), weight.matrix.rows,
          weight.matrix.depth);
  return adapter;
}

}  // namespace

AdaptedMlp mlp_at(const WeightSet& weights, std::size_t first) {
  const Weight& gate = weights[first];
  const Weight& up = weights[first + 1];
  const Weight& down = weights[first + 2];
  return {.weights = {gate.matrix, up.matrix, down.matrix},
          .gate = adapter_of(gate),
          .up = adapter_of(up),
          .down = adapter_of(down)};
}

}  // namespace moesaic
