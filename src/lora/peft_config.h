#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "src/lora/adapter_set.h"
#include "src/lora/peft_modules.h"

namespace moesaic {

/// adapter_config.json of a LoRA adapter, as far as it decides what the adapter computes.
class PeftConfig {
 public:
  /// Throws Error{file} naming the field for what is not LoRA in its plain form: DoRA, biases,
  /// modules that are saved whole, ...
  static PeftConfig parse(const Json& json);

  [[nodiscard]] bool rank_stabilised() const noexcept { return rank_stabilised_; }
  [[nodiscard]] double dropout() const noexcept { return dropout_; }
  /// Name of the model that it was trained on; may be empty.
  [[nodiscard]] const std::string& base_model() const noexcept { return base_model_; }

  /// The name of the site's module, or of its parameter, that target_modules or target_parameters
  /// hit; empty: they do not. Fused experts are parameters, all others may be.
  [[nodiscard]] std::string hit_name(const AdapterSite& site, AdapterLayout layout) const;
  struct Numbers {
    std::int64_t rank = 0;
    double alpha = 0;
    bool has_own_rank = false;  ///< from rank_pattern
  };
  /// Of what has this hit_name().
  [[nodiscard]] Numbers numbers(const std::string& name) const;

 private:
  struct Names;
  class Pattern;
  void refuse_other_methods(const Json& json) const;
  void read_targets(const Json& json);
  [[nodiscard]] bool hits_parameter(const std::string& name) const;

  // Of modules that no pattern is for.
  std::int64_t rank_ = 0;
  double alpha_ = 0;

  bool rank_stabilised_ = false;
  double dropout_ = 0;
  std::string base_model_;
  std::vector<std::pair<std::shared_ptr<const Pattern>, std::int64_t>> ranks_;
  std::vector<std::pair<std::shared_ptr<const Pattern>, double>> alphas_;
  std::shared_ptr<const Names> modules_;   // null: none
  std::shared_ptr<const Names> excluded_;  // null: none
  std::vector<std::string> parameters_;
  std::optional<std::vector<std::int64_t>> layers_;
};

/// What a written configuration says besides what follows from the adapters.
struct AdapterDescription {
  AdapterLayout layout = AdapterLayout::transformers4;
  bool rank_stabilised = false;
  double dropout = 0;
  std::string base_model{};
};

/// The text of adapter_config.json for `adapters`. `sites`: all that the model has, so that the
/// lists of modules hit the adapters' and no others. Throws Error{usage} if the layout wants more
/// in common than the adapters have.
[[nodiscard]] std::string peft_config_text(const AdapterDescription& description,
                                           std::span<const AdapterSpec> adapters,
                                           std::span<const AdapterSite> sites);

/// Whether PEFT loads a model's adapters in this layout rightly on transformers 4 and 5 alike; if
/// not, it does on the one that the layout is named after. `takes_experts`: on transformers 5 those
/// of the family's separate experts. What was measured: docs/formats.md.
[[nodiscard]] bool loads_on_both(const AdapterDescription& description, bool takes_experts,
                                 std::span<const AdapterSpec> adapters);

}  // namespace moesaic
