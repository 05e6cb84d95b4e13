#include "src/model/model_names.h"

#include <fmt/format.h>

#include <utility>

#include "src/checkpoint/companion_names.h"
#include "src/model/model_config.h"

namespace moesaic {
namespace {

/// The first of the names that is there, or the first of all.
std::string first_of(std::initializer_list<std::string_view> names, const TensorExists& exists) {
  for (const std::string_view name : names) {
    if (is_stored(name, exists)) return std::string(name);
  }
  return std::string(*names.begin());
}

/// What stands before "layers.0": a model without its head is saved without "model.".
std::string find_root(const TensorExists& exists) {
  for (const std::string root : {"model.", "model.language_model.", "language_model.model.", ""}) {
    if (exists(root + "embed_tokens.weight")) return root;
  }
  return "model.";
}

/// Completes the paths of modules that can have adapters: they are those of transformers 4, however
/// the checkpoint calls its tensors.
void complete_sites(std::vector<NamedWeight>& weights, std::int64_t layer, bool in_transformers4) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (NamedWeight& weight : weights) {
    for (AdapterSite& site : weight.sites) {
      site.layer = layer;
      site.in_transformers4 = in_transformers4;
      site.module.insert(0, prefix);
      if (!site.fused4.empty()) site.fused4.insert(0, prefix);
      if (!site.fused5.empty()) site.fused5.insert(0, prefix);
    }
  }
}

LayerNames find_layer(const ModelConfig& config, const LayerConfig& layer,
                      const LayerTensors& tensors) {
  const auto norm = [&](std::string_view name) {
    return vector_slice(tensors.name(name), config.hidden_size, config.norm_offset);
  };
  return {.input_norm = norm("input_layernorm.weight"),
          .post_attention_norm = norm("post_attention_layernorm.weight"),
          .mixer = layer.mixer->weights(tensors),
          .feed_forward = layer.feed_forward->weights(tensors)};
}

}  // namespace

TensorSlice matrix_slice(std::string tensor, std::int64_t rows, std::int64_t cols) {
  return {std::move(tensor), {rows, cols}, 0, rows, cols};
}

TensorSlice vector_slice(std::string tensor, std::int64_t size, float offset) {
  TensorSlice slice{std::move(tensor), {size}, 0, 1, size};
  slice.offset = offset;
  return slice;
}

bool LayerTensors::has_matrix(std::string_view below) const {
  return is_stored(name(below), exists_);
}

TensorSlice LayerTensors::matrix(std::string_view below, std::int64_t rows,
                                 std::int64_t cols) const {
  return matrix_slice(name(below) + ".weight", rows, cols);
}

TensorSlice LayerTensors::bias(std::string_view below, std::int64_t size) const {
  return vector_slice(name(below) + ".bias", size);
}

ModelNames find_model_names(const ModelConfig& config, const TensorExists& exists) {
  const std::string root = find_root(exists);
  ModelNames names;
  names.embedding =
      matrix_slice(root + "embed_tokens.weight", config.vocab_size, config.hidden_size);
  names.final_norm = vector_slice(root + "norm.weight", config.hidden_size, config.norm_offset);
  names.lm_head = names.embedding;
  if (!config.tie_word_embeddings) {
    names.lm_head.tensor = first_of({"lm_head.weight", "language_model.lm_head.weight"}, exists);
  }
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    LayerNames& layer = names.layers.emplace_back(
        find_layer(config, config.layers[l], {fmt::format("{}layers.{}.", root, l), exists}));
    for (auto* weights : {&layer.mixer, &layer.feed_forward}) {
      complete_sites(*weights, static_cast<std::int64_t>(l), config.in_transformers4);
    }
  }
  return names;
}

void for_each_slice(const ModelNames& names,
                    const std::function<void(const TensorSlice&, bool)>& call) {
  call(names.embedding, false);
  for (const LayerNames& layer : names.layers) {
    call(layer.input_norm, false);
    call(layer.post_attention_norm, false);
    for (const auto* weights : {&layer.mixer, &layer.feed_forward}) {
      for (const NamedWeight& weight : *weights) {
        for (const TensorSlice& slice : weight.parts)
          call(slice, weight.role == WeightRole::expert);
      }
    }
  }
  call(names.final_norm, false);
  if (names.lm_head.tensor != names.embedding.tensor) call(names.lm_head, false);
}

}  // namespace moesaic
