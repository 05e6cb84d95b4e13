#pragma once

#include <memory>
#include <utility>

#include "src/moe/experts.h"

namespace moesaic {

/// Which of a rank's experts compute: all of them, or, to be measured alone, those of one place.
struct ExpertsAtWork {
  bool on_gpu = true;
  bool on_cpu = true;
};

/// A rank's experts in up to two places, one of which may rest: its outputs stay what they were.
class ExpertHalves final : public Experts {
 public:
  /// Either may be null. `at_work` must outlive this, and stays during a batch.
  ExpertHalves(std::unique_ptr<Experts> on_gpu, std::unique_ptr<Experts> on_cpu,
               const ExpertsAtWork& at_work)
      : on_gpu_(std::move(on_gpu)), on_cpu_(std::move(on_cpu)), at_work_(&at_work) {}

  void start(const ExpertBatch& batch) override {
    if (gpu_works()) on_gpu_->start(batch);
    if (cpu_works()) on_cpu_->start(batch);
  }
  void finish() override {
    if (cpu_works()) on_cpu_->finish();
    if (gpu_works()) on_gpu_->finish();
  }
  [[nodiscard]] bool plans_itself() const noexcept override {
    return on_gpu_ != nullptr && on_gpu_->plans_itself();
  }
  void tell_placement(const ExpertPlacement& placement, int own_rank) override {
    if (on_gpu_ != nullptr) on_gpu_->tell_placement(placement, own_rank);
  }
  /// Throws Error{usage}: they are measured forwards alone.
  void backward(const ExpertBackward& batch, AdapterGradients& gradients) override;

 private:
  [[nodiscard]] bool gpu_works() const { return on_gpu_ != nullptr && at_work_->on_gpu; }
  [[nodiscard]] bool cpu_works() const { return on_cpu_ != nullptr && at_work_->on_cpu; }

  std::unique_ptr<Experts> on_gpu_;
  std::unique_ptr<Experts> on_cpu_;
  const ExpertsAtWork* at_work_;
};

}  // namespace moesaic
