#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/moe/dispatch_plan.h"

namespace moesaic {

/// The parts of a plan (Combine::fast) while their outputs are computed, in whatever order.
class PartQueue {
 public:
  /// No output of `plan`, which stays, is there.
  void start(const ExecutePlan& plan);
  /// Outputs [first, first + count) are there now. Returns the parts that are whole since, valid
  /// until the next call.
  [[nodiscard]] std::span<const std::int32_t> add(std::int64_t first, std::int64_t count);
  /// The outputs of a part, in ascending expert id.
  [[nodiscard]] std::span<const std::int32_t> outputs_of(std::int32_t part) const;

 private:
  const ExecutePlan* plan_ = nullptr;
  std::vector<std::int64_t> missing_;  // [parts] outputs
  std::vector<std::int32_t> whole_;
};

}  // namespace moesaic
