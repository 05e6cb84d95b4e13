#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/format.h"

namespace moesaic {

// What the benchmarks' options mean. All functions take a list with commas and throw Error{usage}
// that names the option and the item that is none.

/// A weight matrix [columns, depth]: as many results of a row, from as many inputs.
struct MatrixShape {
  std::int64_t columns = 0;  // n
  std::int64_t depth = 0;    // k

  [[nodiscard]] std::string name() const;  // "768x2048"
  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};

/// Of --shapes: "768x2048" (n x k), or a model, which stands for its experts' gate (and up) and
/// down matrices. Each shape once.
[[nodiscard]] std::vector<MatrixShape> parse_shapes(std::string_view list);

/// Of --formats: names as --expert-format has them, f32, or "all" (without f32).
[[nodiscard]] std::vector<Layout> parse_formats(std::string_view list);

/// The experts of one MoE layer.
struct LayerShape {
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t topk = 0;

  [[nodiscard]] std::string name() const;  // "128,2048,768,8"
  friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

/// Of --layer: a model, or four numbers: experts, hidden, intermediate, experts a token.
[[nodiscard]] std::vector<LayerShape> parse_layers(std::string_view list);
/// Of --shape: a model, or the four numbers as 128x2048x768x8 or 128,2048,768,8; `experts`, if not
/// 0, in the place of the shape's.
[[nodiscard]] LayerShape parse_layer_shape(std::string_view text, std::int64_t experts);
/// Throws Error{usage} for a layer that benchmarks cannot run: their router takes elements of a
/// token for its logits. `option`: that the shape comes from.
void require_runnable(const LayerShape& layer, std::string_view option);

}  // namespace moesaic
