#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/checkpoint/safetensors_writer.h"
#include "src/lora/adapter_exchange.h"
#include "src/lora/peft_config.h"
#include "src/lora/written_modules.h"

namespace moesaic {

/// Writes values of all adapters of a model in f32 under the keys of a layout: an adapter's
/// factors, or their gradients. The file appears under its name when it is whole.
class AdapterWriter {
 public:
  /// `adapters` must outlive this. Throws Error{usage} as written_modules does, Error{resource} if
  /// the disk is too small.
  AdapterWriter(const std::string& path, std::span<const AdapterSpec> adapters,
                const AdapterDescription& description);

  /// The factors of adapter `index`, each once, in ascending order. `a` is empty where it is that
  /// of the adapter before.
  void add(std::int64_t index, std::span<const float> a, std::span<const float> b);
  /// Throws Error{internal} if an adapter was left out.
  void finish() { writer_.finish(); }

 private:
  /// The factors of a fused module, until all are there.
  struct FusedFactors {
    std::vector<float> a;
    std::vector<float> b;
    std::size_t missing = 0;
  };
  struct Place {
    std::size_t module = 0;
    std::size_t member = 0;
  };
  void write(const std::string& key, std::span<const float> values);
  void fuse(const WrittenModule& to, const PeftMember& member, FusedFactors& fused,
            std::span<const float> b) const;

  std::span<const AdapterSpec> adapters_;
  std::vector<WrittenModule> modules_;
  std::vector<Place> places_;  // [adapters]
  SafetensorsWriter writer_;
  std::unordered_map<std::size_t, FusedFactors> fused_;  // by module
  std::vector<float> last_a_;
};

/// An adapter to be saved.
struct SavedAdapter {
  AdapterDescription description;
  std::span<const AdapterSpec> adapters;  // of the whole model, as AdapterSet orders them
  std::span<const AdapterSite> sites;     // all that the model has
};

/// Bytes of its adapter_model.safetensors, or a little more.
[[nodiscard]] std::int64_t adapter_file_bytes(const SavedAdapter& adapter);

/// Writes adapter_model.safetensors and adapter_config.json on rank 0 into `directory`, which is
/// made if it is not there. `values`: AdapterSet::masters() of this rank. Collective. Throws
/// Error{resource} on rank 0 when the disk refuses.
void save_adapter(const std::string& directory, const SavedAdapter& adapter,
                  std::span<const float> values, const AdapterExchange& exchange);
/// Memory that this takes on rank 0 besides the values: what has come from other ranks, and a
/// layer's experts until their fused modules are whole, as its layout has them. `sites` may be
/// empty. Throws Error{usage} as written_modules() does.
[[nodiscard]] std::int64_t saving_bytes(const SavedAdapter& adapter);
/// As save_adapter() above where one process holds them all: `set` has the adapters in their order.
/// `watch`, if given, hears after each how many of all are written.
void save_adapter(const std::string& directory, const SavedAdapter& adapter, const AdapterSet& set,
                  const std::function<void(std::int64_t done, std::int64_t total)>& watch = {});

}  // namespace moesaic
