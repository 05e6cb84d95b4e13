#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/packed_matrix.h"
#include "src/checkpoint/matrix_source.h"
#include "src/model/model_files.h"
#include "src/model/weight_layout.h"
#include "src/moe/expert_mask.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

struct ModelWeights;

/// Which memory a weight lies in.
enum class WeightHome {
  node,   ///< once for the ranks of a node, filled by all of them together
  rank,   ///< this rank's own
  device  ///< its GPU's
};

/// One matrix or vector of the model: where it comes from and which member of ModelWeights gets it.
struct PlannedWeight {
  std::string name;  // "layers.3.experts.17.gate", also in converted directories
  WeightHome home = WeightHome::node;
  WeightRole role = WeightRole::dense;
  std::int64_t layer = -1;   // of an expert
  std::int64_t expert = -1;  // and its id

  // From a checkpoint, one below the other, or from a converted directory.
  std::vector<MatrixSource> parts;
  const PackedEntry* stored = nullptr;

  float input_scale = 0;  // as InputScales says, of an expert in nvfp4; 0: none

  // What becomes of it: a packed matrix, or f32 in the order of the parts; or nothing, as of the
  // embedding, which is read where it lies.
  Packing packing{};
  PackedMatrix* matrix = nullptr;
  std::span<const float>* vector = nullptr;
};

/// What is taken of the scales that a checkpoint has for activations in nvfp4 which meet its
/// experts (input_scale).
enum class InputScales {
  none,
  own,     ///< each matrix's, 0 where there is none that can be used
  largest  ///< the largest of all experts of the layer, of gate and up, and of down
};

/// What of the model is wanted, and how.
struct WeightRequest {
  LayoutChoice layouts;
  HeldExperts experts{};                  ///< by default all
  const ExpertMask* on_device = nullptr;  ///< experts for this rank's GPU; null: none
  InputScales input_scales = InputScales::none;
  /// This layer and the embedding alone; nothing: the whole model.
  std::optional<std::int64_t> only_layer{};
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;
  /// Matrices that cannot keep their quantised layout, and why.
  std::vector<std::string> notes;
};

/// Names every weight of the model once, the dense ones and those of the experts that are wanted,
/// and sets the sizes in `target` and its embedding. The plan points into `files` and `target`.
///
/// Throws Error{file} for a weight that is missing or not what the config says, Error{usage} where
/// a converted directory cannot give what is wanted.
[[nodiscard]] WeightPlan plan_weights(const ModelFiles& files, const ModelConfig& config,
                                      const WeightRequest& request, ModelWeights& target);

}  // namespace moesaic
