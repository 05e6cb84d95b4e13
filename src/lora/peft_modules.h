#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/lora/adapter_site.h"

namespace moesaic {

/// Whose modules the keys of an adapter file name.
enum class AdapterLayout {
  transformers4,  ///< every expert has modules of its own, but in GraniteMoE and gpt-oss
  transformers5   ///< the experts of a layer are two parameters: gate_up_proj and down_proj
};
inline constexpr std::array<std::string_view, 2> kAdapterLayoutNames = {"transformers4",
                                                                        "transformers5"};

/// What an adapter file has for one adapter of the model.
struct PeftMember {
  std::int64_t adapter = 0;       // its place among those given
  std::int64_t expert = 0;        // in a fused module
  std::optional<MlpPart> part{};  // in a fused module
  std::int64_t first_out = 0;     // up stands below gate
};

/// A module of an adapter file, which has a factor A and a factor B. A fused one, of all experts of
/// a layer, has A [experts * rank, in], row e * rank + r, and B [out, rank * experts], column
/// r * experts + e (PEFT's ParamWrapper, from 0.19.1 on).
struct PeftModule {
  std::string key;           // "base_model.model.model.layers.3.self_attn.q_proj"
  std::string target;        // what lists and patterns of adapter_config.json call it
  std::int64_t experts = 0;  // of a fused one; 0: it is one matrix
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool takes_turns = false;  // in the file rows of B are of gate and up by turns
  /// The file has B transposed as its A [experts * rank, out], and A as its B [in, rank * experts].
  bool is_swapped = false;
  std::vector<PeftMember> members;

  [[nodiscard]] std::string a_key() const { return key + ".lora_A.weight"; }
  [[nodiscard]] std::string b_key() const { return key + ".lora_B.weight"; }
  /// Sizes of the file's A [ranks, file_in] and B [file_out, ranks].
  [[nodiscard]] std::int64_t file_in() const noexcept { return is_swapped ? out : in; }
  [[nodiscard]] std::int64_t file_out() const noexcept { return is_swapped ? in : out; }
};

/// What adapter_config.json calls a site's module.
struct PeftTarget {
  bool is_fused = false;
  /// It stands in target_parameters, else in target_modules. Of transformers 5 this is so for all
  /// MLPs: PEFT takes a gate_proj among target_modules for experts', and forgets all others.
  bool is_parameter = false;
  std::string name;  // that lists and patterns are for: ends with the parameter, if it is one
};
[[nodiscard]] PeftTarget peft_target(const AdapterSite& site, AdapterLayout layout);

/// The modules of a file with adapters for `sites`, in the order of their first ones.
[[nodiscard]] std::vector<PeftModule> peft_modules(std::span<const AdapterSite> sites,
                                                   AdapterLayout layout);

}  // namespace moesaic
