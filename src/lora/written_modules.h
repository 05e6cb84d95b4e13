#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/lora/adapter_set.h"
#include "src/lora/peft_modules.h"

namespace moesaic {

/// A module of a file that is going to be written, with its numbers there.
struct WrittenModule {
  PeftModule module;
  std::int64_t rank = 0;
  double alpha = 0;
  /// Of a fused module of gates and ups: where the ranks of ups begin. 0: they share A with the
  /// gates; else A is A_gate above A_up, B is blocks: B_gate above and left, B_up below and right.
  std::int64_t up_first_rank = 0;
};

/// Throws Error{usage} if a fused module would have adapters of different ranks or alphas, which
/// it has one of, and if nothing in the file would tell its layout.
[[nodiscard]] std::vector<WrittenModule> written_modules(std::span<const AdapterSpec> adapters,
                                                         AdapterLayout layout,
                                                         bool rank_stabilised);
/// Whether it does not throw.
[[nodiscard]] bool can_be_written(std::span<const AdapterSpec> adapters, AdapterLayout layout,
                                  bool rank_stabilised);

}  // namespace moesaic
