// libFuzzer: any bytes as a config.json, and as its quantization_config. What is accepted must be
// small enough to be used: the names of its tensors are made when the model is not absurdly large.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "src/checkpoint/quantization_config.h"
#include "src/model/model_config.h"
#include "src/model/model_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    (void)moesaic::parse_quantization_config(moesaic::Json::parse(text, "fuzz"));
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  try {
    const auto config =
        moesaic::parse_model_config(moesaic::Json::parse(text, "fuzz"), std::nullopt);
    if (config.num_layers() * config.num_experts > 10'000) return 0;
    const auto names =
        moesaic::find_model_names(config, [](std::string_view name) { return name.size() % 2; });
    moesaic::for_each_slice(names, [](const moesaic::TensorSlice& slice, bool) {
      if (slice.rows <= 0 || slice.cols <= 0 || slice.first_row < 0) std::abort();
    });
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  return 0;
}
