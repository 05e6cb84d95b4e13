#include "src/model/inventory.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/checkpoint/companion_names.h"

namespace moesaic {
namespace {

/// Buffers that old versions of transformers stored and that follow from config.json, and scales of
/// a quantised key-value cache, which is not used.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attention.bias") ||
         name.ends_with(".masked_bias") || name.ends_with(".k_scale") || name.ends_with(".v_scale");
}

/// Parts of a model that generation of text from text has no use for: images, and, of Qwen and
/// ERNIE, what predicts further tokens.
bool is_of_no_use(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"vision_tower.", "mm_projector.", "model.visual.",
                                              "visual.",       "mtp.",          "model.mtp.",
                                              "model.mtp_"};
  return std::ranges::any_of(
      kBeginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

/// Layers behind the last, which predict further tokens. They have a matrix that brings the
/// embedding of a token and the state before it together.
class PredictionLayers {
 public:
  PredictionLayers(const Checkpoint& checkpoint, const ModelNames& names)
      : prefix_(layer_prefix(names)), num_layers_(std::ssize(names.layers)) {
    const auto exists = [&](std::string_view name) { return checkpoint.contains(name); };
    while (is_stored(prefix_ + std::to_string(end_) + ".eh_proj.weight", exists)) ++end_;
  }

  /// Whether the tensor is one of theirs.
  [[nodiscard]] bool has(std::string_view name) const {
    if (!name.starts_with(prefix_)) return false;
    const std::string_view below = name.substr(prefix_.size());
    std::int64_t layer = -1;
    std::from_chars(below.data(), below.data() + below.size(), layer);
    return layer >= num_layers_ && layer < end_;
  }

 private:
  /// "model.layers."
  static std::string layer_prefix(const ModelNames& names) {
    const std::string& embedding = names.embedding.tensor;
    return embedding.substr(0, embedding.size() - kEmbedding.size()) + "layers.";
  }

  static constexpr std::string_view kEmbedding = "embed_tokens.weight";
  std::string prefix_;
  std::int64_t num_layers_;
  std::int64_t end_ = num_layers_;
};

bool is_lm_head(std::string_view name) {
  return name == "lm_head.weight" || name == "language_model.lm_head.weight";
}

}  // namespace

Inventory take_inventory(const Checkpoint& checkpoint, const ModelNames& names) {
  const auto exists = [&](std::string_view name) { return checkpoint.contains(name); };
  std::unordered_map<std::string_view, bool> slices;  // tensor -> whether it is of experts
  for_each_slice(
      names, [&](const TensorSlice& slice, bool expert) { slices.emplace(slice.tensor, expert); });
  std::unordered_map<std::string, bool> wanted;  // the same, of the tensors that store them
  std::set<std::string> missing;
  for (const auto& [tensor, expert] : slices) {
    StoredNames stored = find_stored_names(tensor, exists);
    for (std::string& name : stored.present) wanted.emplace(std::move(name), expert);
    missing.insert(stored.missing.begin(), stored.missing.end());
  }
  const PredictionLayers prediction(checkpoint, names);
  const bool tied = names.lm_head.tensor == names.embedding.tensor;

  Inventory inventory;
  inventory.missing.assign(missing.begin(), missing.end());
  for (const TensorView* tensor : checkpoint.tensors()) {
    const auto found = wanted.find(tensor->name);
    if (found != wanted.end()) {
      auto& bytes = found->second ? inventory.expert_bytes : inventory.non_expert_bytes;
      bytes[tensor->dtype] += static_cast<std::int64_t>(tensor->bytes.size());
    } else if (is_buffer(tensor->name) || is_of_no_use(tensor->name) ||
               prediction.has(tensor->name) || (tied && is_lm_head(tensor->name))) {
      inventory.ignored.push_back(tensor->name);
    } else {
      inventory.unknown.push_back(tensor->name);
    }
  }
  return inventory;
}

}  // namespace moesaic
