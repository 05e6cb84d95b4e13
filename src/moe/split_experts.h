#pragma once

#include <memory>
#include <utility>

#include "src/moe/experts.h"

namespace moesaic {

/// The experts of a layer in two places, each of which computes those of its own slots of a batch:
/// what runs by itself comes first, and is waited for last.
class SplitExperts final : public Experts {
 public:
  SplitExperts(std::unique_ptr<Experts> first, std::unique_ptr<Experts> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  void start(const ExpertBatch& batch) override {
    first_->start(batch);
    second_->start(batch);
  }
  void finish() override {
    second_->finish();
    first_->finish();
  }
  [[nodiscard]] bool plans_itself() const noexcept override {
    return first_->plans_itself() || second_->plans_itself();
  }
  void tell_placement(const ExpertPlacement& placement, int own_rank) override {
    first_->tell_placement(placement, own_rank);
    second_->tell_placement(placement, own_rank);
  }
  [[nodiscard]] DeviceExperts* on_device() noexcept override {
    DeviceExperts* const of_first = first_->on_device();
    return of_first != nullptr ? of_first : second_->on_device();
  }
  /// Throws Error{usage}: what is kept for it is kept of all experts together.
  void backward(const ExpertBackward& batch, AdapterGradients& gradients) override;

 private:
  std::unique_ptr<Experts> first_;
  std::unique_ptr<Experts> second_;
};

}  // namespace moesaic
