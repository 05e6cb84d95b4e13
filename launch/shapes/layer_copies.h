#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/whole_product.h"
#include "launch/shapes/expert_halves.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/device_weights.h"
#include "src/moe/cpu_experts.h"
#include "src/moe/device_experts.h"
#include "src/moe/moe_layer.h"

namespace moesaic {

/// Bytes of the experts of one layer that a rank with this many of them has.
[[nodiscard]] std::int64_t layer_bytes(const LayerShape& shape, const Layout& layout,
                                       std::int64_t local_experts);

/// Where the weights of a rank's experts go.
struct LayerPlace {
  std::span<std::byte> memory;               // has room for one copy and stays
  DeviceExpertsWorkspace* device = nullptr;  // of a rank with a GPU
  SlotMask on_device{};                      // which experts are there; empty: none
  /// [local experts] The rank's: weights of each are its own, whichever rank has it. Empty: all
  /// have the same weights.
  std::span<const ExpertId> experts{};
  /// Null, or which of them compute, where some of the layer's are on GPUs and some on CPUs.
  ExpertsAtWork* at_work = nullptr;
};

/// One rank's part of an MoE layer of random weights, in as many copies as the memory has room for:
/// as the layers of a model, each finds its weights in memory and not in a cache when it is run.
/// The router's logits are the first elements of a token.
class LayerCopies {
 public:
  struct Copy {
    std::vector<AdaptedMlp> experts;  // [local experts] in memory of the host
    Router router;
    MoeLayer layer;
  };

  /// What `place` points to outlives this.
  LayerCopies(const LayerShape& shape, const Layout& layout, std::int64_t local_experts,
              const LayerPlace& place, const Compute& compute);

  [[nodiscard]] const LayerShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] RowSource::Element element() const noexcept {
    return layout_.format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  }
  [[nodiscard]] std::int64_t local_experts() const noexcept { return local_experts_; }
  /// Packed bytes of one expert.
  [[nodiscard]] std::int64_t expert_bytes() const noexcept { return expert_bytes_; }
  /// What the copies' products run on.
  [[nodiscard]] GroupedGemm& gemm() noexcept { return *gemm_; }
  [[nodiscard]] std::span<Copy> copies() noexcept { return copies_; }
  [[nodiscard]] std::int64_t num_copies() const noexcept { return std::ssize(copies_); }

 private:
  [[nodiscard]] std::unique_ptr<Experts> make_experts(std::span<const AdaptedMlp> own,
                                                      const LayerPlace& place);
  [[nodiscard]] std::unique_ptr<Experts> make_device_experts(std::span<const AdaptedMlp> own,
                                                             const LayerPlace& place);

  LayerShape shape_;
  Layout layout_;
  std::int64_t local_experts_;
  std::int64_t expert_bytes_ = 0;
  std::unique_ptr<GroupedGemm> gemm_;
  std::unique_ptr<AdapterProducts> adapters_;
  std::unique_ptr<MlpProducts> mlps_;
  std::unique_ptr<CpuExpertsWorkspace> experts_work_;
  std::vector<std::unique_ptr<DeviceWeights>> device_weights_;
  std::vector<OwnedMatrix> routers_;
  std::vector<Copy> copies_;
};

}  // namespace moesaic
