#include "tests/support/attention_sinks.h"

#include <fmt/format.h>

#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/model/gqa_kind.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::test {

std::vector<Family> families_with_sinks(bool sinks) {
  Family family = known_families().front();
  family.name = "sink_moe";
  const GqaTraits traits{.qk_norm = QkNorm::per_head, .sinks = sinks};
  family.mixers = {{"full_attention", read_gqa(traits, GqaSpan::all)},
                   {"sliding_attention", read_gqa(traits, GqaSpan::window)}};
  family.usual_layer_type = [](const ConfigReader&, std::int64_t layer) {
    return std::string_view(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  };
  return {family};
}

SinkCheckpoint::SinkCheckpoint(const std::vector<float>& sinks) {
  const std::string plain = MOESAIC_TEST_DATA "/models/qwen3_moe-v4";
  std::string config = read_text(plain + "/config.json");
  config = replaced(config, "\"qwen3_moe\"", "\"sink_moe\"");
  config =
      replaced(config, "\"sliding_window\": null", fmt::format("\"sliding_window\": {}", kWindow));
  write_text(directory_.path_of("config.json"), config);
  const SafetensorsFile weights = SafetensorsFile::open(plain + "/model.safetensors");
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : weights.tensors()) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const auto name = [](int layer) { return fmt::format("model.layers.{}.self_attn.sinks", layer); };
  for (const int layer : {0, 1, 2}) specs.push_back({name(layer), DType::f32, {std::ssize(sinks)}});
  SafetensorsWriter writer(directory_.path_of("model.safetensors"), specs);
  for (const TensorView& tensor : weights.tensors()) writer.write(tensor.name, 0, tensor.bytes);
  for (const int layer : {0, 1, 2}) writer.write(name(layer), 0, std::as_bytes(std::span(sinks)));
  writer.finish();
}

}  // namespace moesaic::test
