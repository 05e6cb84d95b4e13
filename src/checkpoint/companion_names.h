#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/tensor_slice.h"

namespace moesaic {

/// Names that a companion of the matrix `tensor` may have, the usual one first. Companions are
/// asked for by all of their name behind the matrix's, so that "weight_scale" never finds
/// "weight_scale_2".
///
///   ...experts.7.up_proj.weight   "weight_scale": ...up_proj.weight_scale
///   ...experts.gate_up_proj       "weight_scale": ...gate_up_proj_weight_scale,
///                                 ...gate_up_proj.weight_scale, ...gate_up_proj_scale
///
/// "weight" is the matrix itself.
[[nodiscard]] std::vector<std::string> companion_names(std::string_view tensor,
                                                       std::string_view companion);

/// Whether a matrix of this name is there, plain or quantised.
[[nodiscard]] bool is_stored(std::string_view tensor, const TensorExists& exists);

/// The tensors that together store one matrix.
struct StoredNames {
  std::vector<std::string> present;
  std::vector<std::string> missing;  ///< the matrix itself, if there is nothing of it
};
[[nodiscard]] StoredNames find_stored_names(std::string_view tensor, const TensorExists& exists);

}  // namespace moesaic
