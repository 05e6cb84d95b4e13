#include "launch/bench/layer_copies.h"

#include "launch/bench/cold_weights.h"

namespace moesaic {
namespace {

std::int64_t matrix_bytes(const Layout& layout, std::int64_t rows, std::int64_t depth) {
  return panel_count(rows) * panel_bytes(layout, depth);
}

/// A router that takes the first elements of a token for its logits.
OwnedMatrix make_router(const LayerShape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.experts * shape.hidden));
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    values[static_cast<std::size_t>(expert * shape.hidden + expert)] = 1;
  }
  return pack_matrix({.format = Format::f32}, values, shape.experts, shape.hidden);
}

}  // namespace

std::int64_t layer_bytes(const LayerShape& shape, const Layout& layout,
                         std::int64_t local_experts) {
  return local_experts * (2 * matrix_bytes(layout, shape.intermediate, shape.hidden) +
                          matrix_bytes(layout, shape.hidden, shape.intermediate));
}

LayerCopies::LayerCopies(const LayerShape& shape, const Layout& layout, std::int64_t local_experts,
                         std::span<std::byte> memory, const Compute& compute)
    : shape_(shape),
      layout_(layout),
      local_experts_(local_experts),
      expert_bytes_(layer_bytes(shape, layout, 1)),
      gemm_(std::make_unique<GroupedGemm>(compute)),
      adapters_(std::make_unique<AdapterProducts>(compute, *gemm_)),
      mlps_(std::make_unique<MlpProducts>(compute, *gemm_, *adapters_)),
      experts_work_(std::make_unique<CpuExpertsWorkspace>(*mlps_)) {
  const SampleWeights inner(layout, shape.hidden);
  const SampleWeights outer(layout, shape.intermediate);
  const std::int64_t count = std::ssize(memory) / (local_experts * expert_bytes_);
  std::vector<AdaptedMlp> experts(static_cast<std::size_t>(count * local_experts));
  compute.pool->parallel_for(std::ssize(experts), [&](std::int64_t index, int) {
    std::byte* at = memory.data() + index * expert_bytes_;
    MlpWeights& expert = experts[static_cast<std::size_t>(index)].weights;
    expert.gate = inner.write_matrix(shape.intermediate, at);
    at += inner.bytes(shape.intermediate);
    expert.up = inner.write_matrix(shape.intermediate, at);
    at += inner.bytes(shape.intermediate);
    expert.down = outer.write_matrix(shape.hidden, at);
  });
  const RouterOptions options{.topk = shape.topk, .normalize = true};
  routers_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t copy = 0; copy < count; ++copy) {
    const auto own = std::span(experts).subspan(static_cast<std::size_t>(copy * local_experts),
                                                static_cast<std::size_t>(local_experts));
    const PackedMatrix& gate = routers_.emplace_back(make_router(shape)).matrix;
    copies_.push_back(
        {.experts = {own.begin(), own.end()},
         .router = Router(gate, options, compute),
         .layer = MoeLayer(Router(gate, options, compute),
                           std::make_unique<CpuExperts>(own, element(), *experts_work_), element(),
                           compute)});
  }
}

}  // namespace moesaic
