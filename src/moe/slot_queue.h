#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/moe/dispatch_plan.h"

namespace moesaic {

/// The slots of a rank's experts that still have to run, while the rows that they work on come in.
/// A slot runs once, with all its rows.
class SlotQueue {
 public:
  using IsHere = std::function<bool(std::int64_t source)>;

  /// All slots of `plan`, which stays. Some are handed out at a time, so that results can leave:
  /// when they have `outputs_at_once`, no more.
  void start(const ExecutePlan& plan, std::int64_t outputs_at_once);
  [[nodiscard]] bool is_empty() const noexcept { return next_ == done_.size(); }
  /// The next slots, one beside the other, whose rows are all here; nothing if none has all.
  [[nodiscard]] std::optional<SlotRange> next(const IsHere& is_here);

 private:
  [[nodiscard]] bool is_ready(std::size_t slot, const IsHere& is_here);

  const ExecutePlan* plan_ = nullptr;
  std::int64_t outputs_at_once_ = 0;
  std::vector<bool> done_;          // [slots] handed out
  std::vector<std::int64_t> seen_;  // [slots] outputs below have their rows here
  std::size_t next_ = 0;            // all slots below are done
};

}  // namespace moesaic
