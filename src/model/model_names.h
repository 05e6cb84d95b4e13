#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/tensor_slice.h"
#include "src/lora/adapter_site.h"
#include "src/model/weight_layout.h"

namespace moesaic {

struct ModelConfig;

/// How a weight is kept in memory.
enum class WeightForm {
  matrix,      ///< packed in the layout that LayoutChoice finds
  f32_matrix,  ///< packed as f32 in every precision: choices must not hang on rounding
  vector       ///< f32
};

/// A weight of a layer: a matrix or vector, made of tensors that stand one below the other.
struct NamedWeight {
  std::string name;                ///< below its layer: "qkv", also in converted directories
  std::vector<TensorSlice> parts;  ///< none: this model has no such weight
  WeightForm form = WeightForm::matrix;
  WeightRole role = WeightRole::dense;
  /// It takes the layout of the weight before it: one product reads both, as gate and up.
  bool joins_previous = false;
  std::int64_t expert = -1;  ///< that it belongs to, of role expert
  /// Which of its rows can have adapters, from above; modules are named below their layer, whose
  /// number is filled in by find_model_names as the rest of the path is.
  std::vector<AdapterSite> sites{};
};

struct LayerNames {
  TensorSlice input_norm;                 // [1, hidden]
  TensorSlice post_attention_norm;        // [1, hidden]
  std::vector<NamedWeight> mixer;         ///< in the order of its MixerKind
  std::vector<NamedWeight> feed_forward;  ///< in the order of its FeedForwardKind
};

struct ModelNames {
  TensorSlice embedding;   // [vocab, hidden]
  TensorSlice final_norm;  // [1, hidden]
  TensorSlice lm_head;     // [vocab, hidden], the embedding itself if they are tied
  std::vector<LayerNames> layers;
};

[[nodiscard]] TensorSlice matrix_slice(std::string tensor, std::int64_t rows, std::int64_t cols);
[[nodiscard]] TensorSlice vector_slice(std::string tensor, std::int64_t size, float offset = 0);

/// Looks for a layer's tensors among those that a checkpoint has.
class LayerTensors {
 public:
  /// `prefix`: "model.layers.3.". `exists` must outlive this.
  LayerTensors(std::string prefix, const TensorExists& exists)
      : prefix_(std::move(prefix)), exists_(exists) {}

  [[nodiscard]] std::string name(std::string_view below) const {
    return prefix_ + std::string(below);
  }
  /// Whether a matrix of this name is there, plain or quantised.
  [[nodiscard]] bool has_matrix(std::string_view below) const;
  /// Whether the checkpoint has exactly this tensor. `tensor` is its full name.
  [[nodiscard]] bool has_tensor(std::string_view tensor) const { return exists_(tensor); }

  /// "NAME.weight" [rows, cols] and "NAME.bias" [rows].
  [[nodiscard]] TensorSlice matrix(std::string_view below, std::int64_t rows,
                                   std::int64_t cols) const;
  [[nodiscard]] TensorSlice bias(std::string_view below, std::int64_t size) const;

 private:
  std::string prefix_;
  const TensorExists& exists_;
};

/// Where each weight of the model is. Names are found by trying the known patterns against the
/// names that are there, whatever the family; where none is there, the family's usual name is
/// given.
[[nodiscard]] ModelNames find_model_names(const ModelConfig& config, const TensorExists& exists);

/// Calls for every slice of the model; `expert` tells weights of routed experts from the rest.
void for_each_slice(const ModelNames& names,
                    const std::function<void(const TensorSlice& slice, bool expert)>& call);

}  // namespace moesaic
