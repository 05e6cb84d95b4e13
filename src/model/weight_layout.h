#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/format.h"
#include "src/checkpoint/matrix_source.h"
#include "src/model/precision.h"

namespace moesaic {

/// "bf16", "int4_group128": the format, and its group unless that is the usual one (int4_group: 32,
/// fp8_block: 128).
[[nodiscard]] std::string layout_name(const Layout& layout);
/// Inverse of layout_name.
[[nodiscard]] std::optional<Layout> layout_from_name(std::string_view name);
/// The layout_name that a spelling of a format means, in small or capital letters: one of ours, or
/// one of KTransformers' (AMXINT4, RAWINT4, FP8, GPTQ_INT4, ...). Anything else comes back as it
/// is.
[[nodiscard]] std::string canonical_layout_name(std::string_view spelling);

/// How a weight is packed.
struct Packing {
  Layout layout{};
  /// The codes of a quantised checkpoint are taken as they are, in their order of columns; else
  /// values are read, and quantised if the layout wants that.
  bool keeps_codes = false;

  friend bool operator==(const Packing&, const Packing&) = default;
};

/// Which layout a weight is stored in.
///
/// Matrices that are stacked, or read together as gate and up are, keep the layout of a quantised
/// checkpoint only if they agree in it; where they do not, they are stored as bf16 (f32 if one of
/// them is f16 or f32 on disk).
class LayoutChoice {
 public:
  /// Experts of `expert_layout`, or as the checkpoint has them. With Precision::f32 every weight is
  /// f32.
  LayoutChoice(Precision precision, std::optional<Layout> expert_layout)
      : precision_(precision), expert_layout_(expert_layout) {}

  [[nodiscard]] Precision precision() const noexcept { return precision_; }
  [[nodiscard]] const std::optional<Layout>& expert_layout() const noexcept {
    return expert_layout_;
  }

  /// Dense matrices that stand one below the other. They keep what the checkpoint has: they are few
  /// and every token meets them.
  [[nodiscard]] Packing stacked(std::span<const MatrixSource> parts) const;
  /// A dense matrix, or a dense gate and up.
  [[nodiscard]] Packing dense(std::span<const MatrixSource> together) const;
  /// A matrix of a routed expert, or an expert's gate and up. f16 and f32 become bf16.
  [[nodiscard]] Packing expert(std::span<const MatrixSource> together) const;

 private:
  Precision precision_;
  std::optional<Layout> expert_layout_;
};

}  // namespace moesaic
