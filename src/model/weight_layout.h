#pragma once

#include <array>
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
/// layout_name of what is wanted; "auto" for nothing.
[[nodiscard]] std::string wanted_name(const std::optional<Layout>& wanted);
/// The names of all layouts but f32.
inline constexpr std::array<std::string_view, 12> kLayoutNames = {
    "bf16",      "int8",        "int4",        "int4_group", "int4_group64", "int4_group128",
    "fp8_block", "fp8_block32", "fp8_channel", "nvfp4",      "mxfp4",        "mxfp8"};
/// Inverse of layout_name.
[[nodiscard]] std::optional<Layout> layout_from_name(std::string_view name);
/// The layout_name that a spelling of a format means, in small or capital letters: one of ours, or
/// one of KTransformers' (AMXINT4, RAWINT4, FP8, GPTQ_INT4, ...). Anything else comes back as it
/// is.
[[nodiscard]] std::string canonical_layout_name(std::string_view spelling);
/// Why a name of KTransformers' is that of no layout: "; ...", which fits behind the message that
/// it is none. Empty for all others.
[[nodiscard]] std::string_view foreign_layout_remark(std::string_view spelling);

/// How a weight is packed.
struct Packing {
  Layout layout{};
  /// The codes of a quantised checkpoint are taken as they are, in their order of columns; else
  /// values are read, and quantised if the layout wants that.
  bool keeps_codes = false;

  friend bool operator==(const Packing&, const Packing&) = default;
};

/// What a matrix is for.
enum class WeightRole {
  expert,  ///< of a routed expert
  dense,   ///< attention, shared experts, MLPs of layers without experts
  head     ///< the output matrix: logits
};

/// Layouts that are asked for; nothing: as the files have them.
struct WantedLayouts {
  std::optional<Layout> experts{};
  std::optional<Layout> dense{};
  std::optional<Layout> head{};

  [[nodiscard]] const std::optional<Layout>& of(WeightRole role) const noexcept;
};

/// Which layout a weight is stored in: the one that is wanted; else what the files have, but
/// experts in f16 or f32 become bf16.
///
/// Matrices that are stacked, or read together as gate and up are, keep the codes of a quantised
/// checkpoint only if they agree in their layout. Where they do not and no layout is wanted, they
/// are stored as bf16 (f32 if one of them is f16 or f32 on disk).
class LayoutChoice {
 public:
  /// With Precision::f32 every weight is f32.
  LayoutChoice(Precision precision, const WantedLayouts& wanted)
      : precision_(precision), wanted_(wanted) {}

  [[nodiscard]] Precision precision() const noexcept { return precision_; }
  [[nodiscard]] const WantedLayouts& wanted() const noexcept { return wanted_; }

  /// Matrices that stand one below the other.
  [[nodiscard]] Packing stacked(WeightRole role, std::span<const MatrixSource> parts) const;
  /// A matrix, or a gate and an up.
  [[nodiscard]] Packing together(WeightRole role, std::span<const MatrixSource> matrices) const;

 private:
  [[nodiscard]] Packing choose(WeightRole role, std::span<const MatrixSource> sources,
                               bool can_keep_codes) const;

  Precision precision_;
  WantedLayouts wanted_;
};

}  // namespace moesaic
