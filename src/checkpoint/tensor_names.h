#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/model_config.h"

namespace moesaic {

/// Where a logical matrix [rows, cols] lies on disk: rows of one tensor, whose leading dimensions
/// count as one. Expert e of a fused [E, 2I, H] tensor has its gate at row e * 2I. A vector of n
/// elements is a matrix [1, n]. Where the matrix is quantised, `tensor` and `shape` are what they
/// would be if it were not, and companion_names.h has the names that are there.
struct TensorSlice {
  std::string tensor;
  std::vector<std::int64_t> shape;  ///< that the whole tensor must have
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_step = 1;  ///< 2 where gate and up take turns (gpt-oss)
};

/// down(silu(gate(x)) * up(x)).
struct MlpNames {
  TensorSlice gate;  // [intermediate, hidden]
  TensorSlice up;    // [intermediate, hidden]
  TensorSlice down;  // [hidden, intermediate]
};

struct LinearNames {
  TensorSlice weight;               // [out, in]
  std::optional<TensorSlice> bias;  // [1, out]
};

struct LayerNames {
  TensorSlice input_norm;             // [1, hidden]
  TensorSlice post_attention_norm;    // [1, hidden]
  LinearNames q, k, v, o;             // [q_width | kv_width | kv_width | hidden, in]
  std::optional<TensorSlice> q_norm;  // [1, head_dim | q_width]
  std::optional<TensorSlice> k_norm;  // [1, head_dim | kv_width]

  std::optional<MlpNames> dense;           ///< layers that are not MoE
  std::optional<TensorSlice> router;       // [num_experts, hidden]
  std::vector<MlpNames> experts;           ///< [num_experts], empty for a dense layer
  std::optional<MlpNames> shared;          ///< shared expert
  std::optional<TensorSlice> shared_gate;  // [1, hidden]
};

struct ModelNames {
  TensorSlice embedding;   // [vocab, hidden]
  TensorSlice final_norm;  // [1, hidden]
  TensorSlice lm_head;     // [vocab, hidden], the embedding itself if they are tied
  std::vector<LayerNames> layers;
};

/// Whether a checkpoint holds a tensor of this name.
using TensorExists = std::function<bool(std::string_view name)>;

/// Where each weight of the model is. Names are found by trying the known patterns (per-expert, or
/// fused in 3-D tensors, under several prefixes) against the names that are there, whatever the
/// family; where none is there, the family's usual name is given.
[[nodiscard]] ModelNames find_tensor_names(const ModelConfig& config, const TensorExists& exists);

/// Calls for every slice of the model; `expert` tells weights of routed experts from the rest.
void for_each_slice(const ModelNames& names,
                    const std::function<void(const TensorSlice& slice, bool expert)>& call);

}  // namespace moesaic
