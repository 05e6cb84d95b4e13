// libFuzzer: any bytes as an adapter: adapter_config.json up to the first zero byte, then
// adapter_model.safetensors. The readers must refuse them with an Error, or give an adapter that
// can be read whole and described in words that mean the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "src/lora/adapter_files.h"

namespace {

using namespace moesaic;

/// Two layers with a query projection and two experts of width 3, hidden 4; those of the second
/// layer have no modules of their own, or all are parameters that lie across.
std::vector<AdapterSite> tiny_sites(bool lie_across) {
  std::vector<AdapterSite> sites;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string path = "model.layers." + std::to_string(layer) + ".";
    sites.push_back({.module = path + "self_attn.q_proj", .layer = layer, .out = 6, .in = 4});
    for (int expert = 0; expert < 2; ++expert) {
      for (const MlpPart part : {MlpPart::gate, MlpPart::up, MlpPart::down}) {
        const bool down = part == MlpPart::down;
        const std::string name = part == MlpPart::gate ? "gate_proj"
                                 : down                ? "down_proj"
                                                       : "up_proj";
        AdapterSite site{.kind = AdapterKind::experts,
                         .module = path + "mlp.experts." + std::to_string(expert) + "." + name,
                         .layer = layer,
                         .expert = expert,
                         .num_experts = 2,
                         .out = down ? 4 : 3,
                         .in = down ? 3 : 4,
                         .part = part};
        site.takes_turns = site.lies_across = lie_across;
        if (layer == 1 && !lie_across)
          site.fused4 = path + "moe." + (down ? "output_linear" : "input_linear");
        site.fused5 = path + "mlp.experts";
        sites.push_back(site);
      }
    }
  }
  return sites;
}

/// Reads the adapter for a model with these sites.
void try_on(const std::vector<AdapterSite>& sites, const std::string& config,
            std::span<const std::uint8_t> tensors) {
  try {
    const AdapterFiles files =
        AdapterFiles::parse(Json::parse(config, "fuzz"),
                            parse_safetensors(std::as_bytes(tensors), "fuzz"), sites, "fuzz");
    AdapterSet set(files.specs(), Format::bf16);
    try {
      files.read(set);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::file) std::abort();
    }
    const std::string text = peft_config_text(files.description(), files.specs(), sites);
    const PeftConfig again = PeftConfig::parse(Json::parse(text, "again"));
    for (const AdapterSpec& spec : files.specs()) {
      if (again.hit_name(spec.site, files.description().layout).empty()) std::abort();
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file && error.kind() != ErrorKind::usage) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<AdapterSite> sites = tiny_sites(false);
  static const std::vector<AdapterSite> across = tiny_sites(true);
  const std::uint8_t* const zero = std::find(data, data + size, std::uint8_t{0});
  const std::string config(reinterpret_cast<const char*>(data),
                           static_cast<std::size_t>(zero - data));
  const std::uint8_t* const tensors = zero == data + size ? zero : zero + 1;
  const auto rest = static_cast<std::size_t>(data + size - tensors);
  try_on(sites, config, {tensors, rest});
  try_on(across, config, {tensors, rest});
  return 0;
}
