#include "src/checkpoint/inventory.h"

#include <set>
#include <string_view>
#include <unordered_map>

namespace moesaic {
namespace {

/// Buffers that old versions of transformers stored; they follow from config.json.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attention.bias") ||
         name.ends_with(".masked_bias");
}

bool is_lm_head(std::string_view name) {
  return name == "lm_head.weight" || name == "language_model.lm_head.weight";
}

}  // namespace

Inventory take_inventory(const Checkpoint& checkpoint, const ModelNames& names) {
  std::unordered_map<std::string_view, bool> wanted;  // tensor -> whether it is of experts
  for_each_slice(
      names, [&](const TensorSlice& slice, bool expert) { wanted.emplace(slice.tensor, expert); });
  const bool tied = names.lm_head.tensor == names.embedding.tensor;

  Inventory inventory;
  std::set<std::string> missing;
  for (const auto& [name, expert] : wanted) {
    if (!checkpoint.contains(name)) missing.emplace(name);
  }
  inventory.missing.assign(missing.begin(), missing.end());
  for (const TensorView* tensor : checkpoint.tensors()) {
    const auto found = wanted.find(tensor->name);
    if (found != wanted.end()) {
      auto& bytes = found->second ? inventory.expert_bytes : inventory.non_expert_bytes;
      bytes[tensor->dtype] += static_cast<std::int64_t>(tensor->bytes.size());
    } else if (is_buffer(tensor->name) || (tied && is_lm_head(tensor->name))) {
      inventory.ignored.push_back(tensor->name);
    } else {
      inventory.unknown.push_back(tensor->name);
    }
  }
  return inventory;
}

}  // namespace moesaic
