#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// What the matrices that can have an adapter are for.
enum class AdapterKind {
  attention,  ///< projections of a mixer
  experts,    ///< gate, up and down of a routed expert
  shared,     ///< those of a shared expert
  dense       ///< those of a layer without experts
};
inline constexpr std::array<std::string_view, 4> kAdapterKindNames = {"attention", "experts",
                                                                      "shared", "dense"};

/// The matrices of a gated MLP.
enum class MlpPart : std::size_t { gate, up, down };

/// A matrix [out, in] that can have an adapter. Each kind of layer names its own.
struct AdapterSite {
  AdapterKind kind = AdapterKind::attention;
  /// Path of the module as transformers 4 names it, no two alike:
  /// "model.layers.3.self_attn.q_proj", "model.layers.3.mlp.experts.7.gate_proj". Experts of
  /// GraniteMoE and gpt-oss, which have no modules of their own, are named in the same way.
  std::string module;
  std::int64_t layer = 0;
  std::int64_t expert = -1;       ///< its global id
  std::int64_t num_experts = 0;   ///< of the layer, where it is an expert's
  std::int64_t first_row = 0;     ///< in the weight of the model that it is part of
  std::int64_t stacked_rows = 0;  ///< of that weight, if it is a stack of matrices; else 0
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::optional<MlpPart> part{};  ///< nothing: it is of no MLP
  /// Not 0: its rows belong to so many heads, which each multiply rows of their own with theirs,
  /// and are those of several weights of the model.
  std::int64_t heads = 0;
  /// Modules that hold the matrices of all experts of the layer in one: of transformers 4
  /// ("...block_sparse_moe.input_linear"), empty where each expert has modules; of transformers 5
  /// ("model.layers.3.mlp.experts"). Empty but for experts.
  std::string fused4{};
  std::string fused5{};
  /// Whether transformers 4 has the family; what it would call the module then is a name like
  /// others.
  bool in_transformers4 = true;
  /// In fused5 outputs of gate and up take turns; else gate comes first.
  bool takes_turns = false;
  /// The parameters of fused5 are [experts, in, out], and the same ones in transformers 4, which
  /// does not tell PEFT so: it takes in for out.
  bool lies_across = false;
};

/// Puts what belongs to no expert before the others, which sets, exchanges and files rely on, and
/// returns how many these are; each keep their order. `site_of` gives the site of an item.
template <typename Item, typename SiteOf = std::identity>
std::int64_t put_common_first(std::vector<Item>& items, SiteOf site_of = {}) {
  const auto of_experts = std::stable_partition(items.begin(), items.end(), [&](const Item& item) {
    return std::invoke(site_of, item).expert < 0;
  });
  return of_experts - items.begin();
}

}  // namespace moesaic
