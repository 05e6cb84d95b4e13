#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// Members of config.json, or of its text_config, that tell how weights are quantised.
inline constexpr std::array<std::string_view, 2> kQuantizationMembers = {"quantization_config",
                                                                         "compression_config"};

/// A block of weights that shares a scale.
struct BlockSize {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  friend bool operator==(const BlockSize&, const BlockSize&) = default;
};

/// Of fp8 where a file does not say another.
inline constexpr BlockSize kUsualBlock = {128, 128};

/// How `qzeros` of GPTQ hold zero points.
enum class GptqZeros {
  minus_one,  ///< "gptq": 0x11111111 was taken from every word; the default
  as_stored,  ///< "gptq_v2"
  unused      ///< "sym": every zero point is 8
};

/// What a checkpoint's configuration says about its quantised weights and its tensors do not. How a
/// matrix is stored is decided by the tensors that are there (codecs/find_codec.h): lists of
/// modules that were left alone come in a syntax of their own with every tool.
struct QuantizationConfig {
  std::string method;             ///< quant_method in lower case; empty: no such configuration
  std::vector<BlockSize> blocks;  ///< that scales of blocks may have, in the order of the file
  std::int64_t group_size = 0;    ///< of GPTQ and AWQ: k that share a scale; -1 all, 0 not said
  GptqZeros gptq_zeros = GptqZeros::minus_one;
};

/// Parses `quantization_config` (or `compression_config`) of config.json. Throws Error{file} naming
/// the field, and what to do, for a method or a variant that is not read.
[[nodiscard]] QuantizationConfig parse_quantization_config(const Json& config);

/// The configuration of a checkpoint directory: in config.json, or, where that says nothing, in
/// hf_quant_config.json (ModelOpt), quantize_config.json (GPTQ) or quant_config.json (AWQ).
[[nodiscard]] QuantizationConfig read_quantization_config(const std::string& directory);

}  // namespace moesaic
