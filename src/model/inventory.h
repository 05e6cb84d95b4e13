#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "src/checkpoint/checkpoint.h"
#include "src/model/model_names.h"

namespace moesaic {

/// What a checkpoint holds, against what its model wants.
struct Inventory {
  std::vector<std::string> missing;  ///< wanted by the model, not there; ascending
  std::vector<std::string> unknown;  ///< there, not wanted by the model; ascending
  /// There, not wanted, and known to be of no use: stored rotary frequencies, a tied lm_head,
  /// scales of a quantised key-value cache, layers that predict further tokens, what reads images.
  std::vector<std::string> ignored;
  /// Routed experts, by dtype, with the scales of quantised ones.
  std::map<DType, std::int64_t> expert_bytes;
  std::map<DType, std::int64_t> non_expert_bytes;  ///< everything else the model wants
};

[[nodiscard]] Inventory take_inventory(const Checkpoint& checkpoint, const ModelNames& names);

}  // namespace moesaic
