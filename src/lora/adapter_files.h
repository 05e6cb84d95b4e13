#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/lora/adapter_set.h"
#include "src/lora/peft_config.h"

namespace moesaic {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterTensorsFile = "adapter_model.safetensors";

/// A LoRA adapter as PEFT keeps it, for one model, in either layout.
class AdapterFiles {
 public:
  /// Reads the configuration and the header of the tensors. `sites`: all that the model has. Throws
  /// Error{file} naming file and field or key: for what is no plain LoRA, for keys that are
  /// missing, unknown or misshapen.
  static AdapterFiles open(const std::string& directory, std::span<const AdapterSite> sites);
  /// The same of documents in memory; `where` stands for the directory in messages.
  static AdapterFiles parse(const Json& config, std::vector<TensorView> tensors,
                            std::span<const AdapterSite> sites, const std::string& where);

  /// The adapters of the whole model, as AdapterSet orders them. Parts of fused modules that are
  /// zeros in A and B are none: the file has them in place of experts, gates and ups that were not
  /// trained.
  [[nodiscard]] const std::vector<AdapterSpec>& specs() const noexcept { return specs_; }
  /// Layout, rslora, dropout and base model.
  [[nodiscard]] const AdapterDescription& description() const noexcept { return description_; }
  /// Bytes of all factors in the file.
  [[nodiscard]] std::int64_t bytes() const noexcept;

  /// Fills in a set of some of specs(). Throws Error{file} naming the key for a value that is not
  /// finite, and the file if it was cut short meanwhile.
  void read(AdapterSet& set) const;

 private:
  /// Where an adapter's factors stand.
  struct Place {
    std::size_t module = 0;
    std::int64_t expert = 0;
    std::int64_t first_rank = 0;
    std::int64_t first_out = 0;

    /// Of B in a module of so many experts: the one for rank `r` of the adapter.
    [[nodiscard]] std::int64_t column(std::int64_t r, std::int64_t experts) const noexcept {
      return (first_rank + r) * experts + expert;
    }
  };
  struct Module {
    PeftModule layout;
    std::int64_t rank = 0;
    double alpha = 0;
    bool has_own_rank = false;
    const TensorView* a = nullptr;
    const TensorView* b = nullptr;
    bool has_blocks = false;
  };
  struct Use;
  /// How gates and ups are fused: B in blocks, or A shared.
  enum class Fusion { unknown, blocks, shared };
  static Fusion fusion_of(const Module& module);
  [[nodiscard]] AdapterLayout layout_of(const PeftConfig& config,
                                        std::span<const AdapterSite> sites) const;
  [[nodiscard]] AdapterLayout layout_by_shape(std::span<const AdapterSite> fused) const;
  void find_modules(const PeftConfig& config, std::span<const AdapterSite> targeted);
  void find_tensors();
  void find_blocks();
  void make_specs(std::span<const AdapterSite> targeted);
  void drop_empty_parts();
  [[nodiscard]] std::vector<bool> filled_parts(const Module& module) const;
  void read_values(AdapterSet& set) const;
  static void read_a(const Module& module, const TensorView& a, std::span<const Use> uses);
  static void read_b(const Module& module, const TensorView& b, std::span<const Use> uses);

  std::string where_;
  std::shared_ptr<const SafetensorsFile> file_;  // null: the tensors are another's
  std::shared_ptr<const std::vector<TensorView>> tensors_;
  AdapterDescription description_;
  std::vector<Module> modules_;
  std::vector<AdapterSpec> specs_;
  std::vector<Place> places_;  // [specs]
};

/// All adapters of a model. Throws as AdapterFiles::read does.
[[nodiscard]] AdapterSet read_whole(const AdapterFiles& adapter);

}  // namespace moesaic
