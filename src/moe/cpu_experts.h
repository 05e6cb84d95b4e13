#pragma once

#include <span>
#include <utility>
#include <vector>

#include "src/lora/adapted_mlp.h"
#include "src/moe/experts.h"

namespace moesaic {

/// What the layers of a model share to run their experts.
struct CpuExpertsWorkspace {
  MlpProducts& mlps;
  std::vector<MlpRows> groups{};  // scratch
};

/// Experts on this rank's threads: down(silu(gate(x)) * up(x)), with their adapters. Products are
/// f32; the gated activations are rounded to `element`, that of the input rows, between the two
/// products.
class CpuExperts final : public Experts {
 public:
  /// `work` must outlive this. `own` [slots]: those that are computed here; empty: all.
  CpuExperts(std::span<const AdaptedMlp> experts, RowSource::Element element,
             CpuExpertsWorkspace& work, SlotMask own = {})
      : experts_(experts.begin(), experts.end()),
        element_(element),
        work_(&work),
        own_(std::move(own)) {}

  /// Computes all of it: whatever runs elsewhere is to be started before.
  void start(const ExpertBatch& batch) override;
  void finish() override {}
  void backward(const ExpertBackward& batch, AdapterGradients& gradients) override;

 private:
  [[nodiscard]] RowSource source(std::span<const std::byte* const> rows) const;
  void make_groups(std::span<const std::int64_t> slot_begin, std::size_t first_slot = 0);

  std::vector<AdaptedMlp> experts_;
  RowSource::Element element_;
  CpuExpertsWorkspace* work_;
  SlotMask own_;
};

}  // namespace moesaic
