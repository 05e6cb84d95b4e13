#include "launch/shapes/layer_copies.h"

#include <algorithm>

#include "base/counter_random.h"
#include "launch/shapes/cold_weights.h"

namespace moesaic {
namespace {

constexpr std::uint64_t kWeightSeed = 7;

/// A router that takes the first elements of a token for its logits.
OwnedMatrix make_router(const LayerShape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.experts * shape.hidden));
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    values[static_cast<std::size_t>(expert * shape.hidden + expert)] = 1;
  }
  return pack_matrix({.format = Format::f32}, values, shape.experts, shape.hidden);
}

/// What the matrices of an expert are made of.
struct SampleExpert {
  const SampleWeights& gate;  // [kRows, hidden]
  const SampleWeights& up;
  const SampleWeights& down;  // [kRows, intermediate]

  /// Writes the expert to `at` and describes it.
  [[nodiscard]] MlpWeights write(const LayerShape& shape, std::byte* at) const {
    MlpWeights expert;
    expert.gate = gate.write_matrix(shape.intermediate, at);
    at += gate.bytes(shape.intermediate);
    expert.up = up.write_matrix(shape.intermediate, at);
    at += up.bytes(shape.intermediate);
    expert.down = down.write_matrix(shape.hidden, at);
    return expert;
  }
};

/// Writes the expert of this id to `at`: it has the same weights on any rank.
MlpWeights write_seeded(const LayerShape& shape, const Layout& layout, ExpertId id, std::byte* at) {
  const CounterRandom random = CounterRandom(kWeightSeed).at(static_cast<std::uint64_t>(id));
  const SampleWeights gate(layout, shape.hidden, random.bits(0));
  const SampleWeights up(layout, shape.hidden, random.bits(1));
  const SampleWeights down(layout, shape.intermediate, random.bits(2));
  return SampleExpert{gate, up, down}.write(shape, at);
}

}  // namespace

std::int64_t layer_bytes(const LayerShape& shape, const Layout& layout,
                         std::int64_t local_experts) {
  return local_experts * (2 * matrix_bytes(layout, shape.intermediate, shape.hidden) +
                          matrix_bytes(layout, shape.hidden, shape.intermediate));
}

LayerCopies::LayerCopies(const LayerShape& shape, const Layout& layout, std::int64_t local_experts,
                         const LayerPlace& place, const Compute& compute)
    : shape_(shape),
      layout_(layout),
      local_experts_(local_experts),
      expert_bytes_(layer_bytes(shape, layout, 1)),
      gemm_(std::make_unique<GroupedGemm>(compute)),
      adapters_(std::make_unique<AdapterProducts>(compute, *gemm_)),
      mlps_(std::make_unique<MlpProducts>(compute, *gemm_, *adapters_)),
      experts_work_(new CpuExpertsWorkspace{*mlps_}) {
  const SampleWeights inner(layout, shape.hidden);
  const SampleWeights outer(layout, shape.intermediate);
  const std::int64_t count = std::ssize(place.memory) / (local_experts * expert_bytes_);
  std::vector<AdaptedMlp> experts(static_cast<std::size_t>(count * local_experts));
  compute.pool->parallel_for(std::ssize(experts), [&](std::int64_t index, int) {
    std::byte* const at = place.memory.data() + index * expert_bytes_;
    MlpWeights& expert = experts[static_cast<std::size_t>(index)].weights;
    if (place.experts.empty()) {
      expert = SampleExpert{inner, inner, outer}.write(shape, at);
    } else {
      const auto slot = static_cast<std::size_t>(index % local_experts);
      expert = write_seeded(shape, layout, place.experts[slot], at);
    }
  });
  const RouterOptions options{.topk = shape.topk, .normalize = true};
  routers_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t copy = 0; copy < count; ++copy) {
    const auto own = std::span(experts).subspan(static_cast<std::size_t>(copy * local_experts),
                                                static_cast<std::size_t>(local_experts));
    const PackedMatrix& gate = routers_.emplace_back(make_router(shape)).matrix;
    copies_.push_back({.experts = {own.begin(), own.end()},
                       .router = Router(gate, options, compute),
                       .layer = MoeLayer(Router(gate, options, compute), make_experts(own, place),
                                         element(), compute)});
    if (place.device != nullptr && place.device->road != nullptr) {
      copies_.back().layer.take_road(*place.device->road);
    }
  }
}

std::unique_ptr<Experts> LayerCopies::make_experts(std::span<const AdaptedMlp> own,
                                                   const LayerPlace& place) {
  const std::int64_t count = std::ranges::count(place.on_device, true);
  std::unique_ptr<Experts> on_gpu;
  std::unique_ptr<Experts> on_cpu;
  if (count > 0) on_gpu = make_device_experts(own, place);
  if (count == 0) {
    on_cpu = std::make_unique<CpuExperts>(own, element(), *experts_work_);
  } else if (count < std::ssize(own)) {
    SlotMask others = place.on_device;
    others.flip();
    on_cpu = std::make_unique<CpuExperts>(own, element(), *experts_work_, others);
  }
  if (place.at_work != nullptr) {
    return std::make_unique<ExpertHalves>(std::move(on_gpu), std::move(on_cpu), *place.at_work);
  }
  return on_gpu != nullptr ? std::move(on_gpu) : std::move(on_cpu);
}

/// They are copied there; their bytes stand one after the other.
std::unique_ptr<Experts> LayerCopies::make_device_experts(std::span<const AdaptedMlp> own,
                                                          const LayerPlace& place) {
  const std::int64_t count = std::ranges::count(place.on_device, true);
  device_weights_.push_back(
      std::make_unique<DeviceWeights>(place.device->device, place.device->deadline_seconds));
  const std::byte* to = device_weights_.back()->allocate(count * expert_bytes_);
  std::vector<AdaptedMlp> experts(own.begin(), own.end());
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    if (!place.on_device[slot]) continue;
    MlpWeights& expert = experts[slot].weights;
    const std::byte* const from = expert.gate.panels;
    device_weights_.back()->write(to, {from, static_cast<std::size_t>(expert_bytes_)});
    for (PackedMatrix* const matrix : {&expert.gate, &expert.up, &expert.down}) {
      matrix->panels = to + (matrix->panels - from);
    }
    to += expert_bytes_;
  }
  device_weights_.back()->finish();
  return std::make_unique<DeviceExperts>(experts, place.on_device, *place.device);
}

}  // namespace moesaic
