#include "src/checkpoint/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/small_file.h"
#include "src/checkpoint/config_reader.h"

namespace moesaic {
namespace {

constexpr IntRange kBlock = {1, std::int64_t{1} << 20};
constexpr IntRange kGroup = {-1, std::int64_t{1} << 20};
constexpr IntRange kBits = {1, 64};

constexpr std::string_view kAdvice =
    "take the unquantised checkpoint, or one that llm-compressor (compressed-tensors), ModelOpt, "
    "GPTQModel or AutoAWQ made";

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// The first of these string fields that is there, in lower case.
std::string find_word(const ConfigReader& reader, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (reader.find(key)) return lower(reader.string_or(key, ""));
  }
  return "";
}

template <std::size_t size>
bool contains(const std::array<std::string_view, size>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

[[noreturn]] void refuse(const Json& config, std::string_view what) {
  fail(ErrorKind::file, "{}: {} are not read; {}", config.where(), what, kAdvice);
}

/// The first of these integer fields that is there must be 4.
void require_four_bits(const ConfigReader& reader, std::initializer_list<std::string_view> keys,
                       std::string_view method) {
  for (const std::string_view key : keys) {
    const auto bits = reader.find_int(key, kBits);
    if (!bits) continue;
    if (*bits != 4) refuse(reader.json(), fmt::format("{}-bit {} weights", *bits, method));
    return;
  }
}

/// [rows, cols], or "128x128".
BlockSize read_block(const Json& value) {
  if (value.is_string()) {
    require(value.as_string_view() == "128x128", ErrorKind::file,
            "{}: expected [rows, columns], found \"{}\"", value.where(), value.as_string_view());
    return kUsualBlock;
  }
  require(value.is_array() && value.size() == 2, ErrorKind::file,
          "{}: expected [rows, columns], found {}", value.where(),
          value.is_array() ? fmt::format("{} elements", value.size()) : "no array");
  const auto side = [&](std::int64_t index) {
    const std::int64_t size = value.at(index).as_int();
    require(size >= kBlock.min && size <= kBlock.max, ErrorKind::file,
            "{}: expected {} to {}, found {}", value.at(index).where(), kBlock.min, kBlock.max,
            size);
    return size;
  };
  return {side(0), side(1)};
}

void add_block(QuantizationConfig& config, BlockSize block) {
  if (std::ranges::find(config.blocks, block) == config.blocks.end()) {
    config.blocks.push_back(block);
  }
}

/// DeepSeek and transformers' fine-grained FP8. Without a block size, one scale a tensor or row.
void read_fp8(const ConfigReader& reader, QuantizationConfig& config) {
  const std::string element = find_word(reader, {"fmt"});
  if (!element.empty() && element != "e4m3" && element != "float8_e4m3fn") {
    refuse(reader.json(), fmt::format("fp8 weights of type \"{}\"", element));
  }
  if (const auto block = reader.find("weight_block_size")) add_block(config, read_block(*block));
}

void check_compressed_format(const Json& where, const std::string& format) {
  static constexpr std::array<std::string_view, 10> kFormats = {"",
                                                                "dense",
                                                                "mixed-precision",
                                                                "naive-quantized",
                                                                "float-quantized",
                                                                "int-quantized",
                                                                "pack-quantized",
                                                                "nvfp4-pack-quantized",
                                                                "mxfp4-pack-quantized",
                                                                "mxfp8-quantized"};
  if (contains(kFormats, format)) return;
  refuse(where, fmt::format("compressed-tensors weights of format \"{}\"", format));
}

void read_compressed_tensors(const ConfigReader& reader, QuantizationConfig& config) {
  if (const auto sparsity = reader.find("sparsity_config")) {
    const std::string format = find_word(ConfigReader(*sparsity), {"format"});
    if (!format.empty() && format != "dense") {
      refuse(*sparsity, fmt::format("sparse weights (\"{}\")", format));
    }
  }
  if (const auto transforms = reader.find("transform_config")) {
    const auto groups = transforms->find("config_groups");
    if (groups && groups->size() > 0) {
      refuse(*groups, "weights that want their inputs transformed (SpinQuant, QuIP)");
    }
  }
  check_compressed_format(reader.json(), find_word(reader, {"format"}));
  const auto groups = reader.find("config_groups");
  if (!groups) return;
  groups->for_each([&](const std::string&, const Json& group) {
    check_compressed_format(group, find_word(ConfigReader(group), {"format"}));
    const auto weights = group.find("weights");
    const auto block = weights ? weights->find("block_structure") : std::nullopt;
    if (block) add_block(config, read_block(*block));
  });
}

void read_modelopt_algorithm(const Json& where, const std::string& algorithm,
                             QuantizationConfig& config) {
  static constexpr std::array<std::string_view, 13> kAlgorithms = {"",
                                                                   "fp8",
                                                                   "fp8_per_channel_per_token",
                                                                   "fp8_pb_wo",
                                                                   "nvfp4",
                                                                   "w4a16_nvfp4",
                                                                   "nvfp4_awq",
                                                                   "mxfp8",
                                                                   "mxfp4",
                                                                   "w4a8_nvfp4_fp8",
                                                                   "w4a16_awq",
                                                                   "w4a8_mxfp4_fp8",
                                                                   "mixed_precision"};
  if (algorithm == "fp8_block_scales") return add_block(config, kUsualBlock);  // its other name
  if (!contains(kAlgorithms, algorithm)) {
    refuse(where, fmt::format("ModelOpt weights of quant_algo \"{}\"", algorithm));
  }
  if (algorithm == "fp8_pb_wo") add_block(config, kUsualBlock);
}

/// Of config.json, or the member "quantization" of hf_quant_config.json.
void read_modelopt(const ConfigReader& reader, QuantizationConfig& config) {
  read_modelopt_algorithm(reader.json(), find_word(reader, {"quant_algo"}), config);
  const auto layers = reader.find("quantized_layers");
  if (!layers) return;
  layers->for_each([&](const std::string&, const Json& layer) {
    read_modelopt_algorithm(layer, find_word(ConfigReader(layer), {"quant_algo"}), config);
  });
}

void read_gptq(const ConfigReader& reader, QuantizationConfig& config) {
  require_four_bits(reader, {"bits"}, "GPTQ");
  config.group_size = reader.int_or("group_size", 0, kGroup);
  const std::string format = find_word(reader, {"checkpoint_format", "format"});
  if (!format.empty() && format != "gptq" && format != "gptq_v2") {
    refuse(reader.json(), fmt::format("GPTQ weights of checkpoint_format \"{}\"", format));
  }
  if (reader.flag_or("sym", false)) {
    config.gptq_zeros = GptqZeros::unused;
  } else {
    config.gptq_zeros = format == "gptq_v2" ? GptqZeros::as_stored : GptqZeros::minus_one;
  }
}

void read_awq(const ConfigReader& reader, QuantizationConfig& config) {
  static constexpr std::array<std::string_view, 4> kOtherLayouts = {"gemv", "gemv_fast", "llm-awq",
                                                                    "marlin"};
  require_four_bits(reader, {"bits", "w_bit"}, "AWQ");
  config.group_size = reader.int_or("group_size", reader.int_or("q_group_size", 0, kGroup), kGroup);
  const std::string version = find_word(reader, {"version", "checkpoint_format", "format"});
  if (contains(kOtherLayouts, version)) {
    refuse(reader.json(), fmt::format("AWQ weights of version \"{}\" (only \"gemm\" is)", version));
  }
}

/// AutoRound writes the tensors of GPTQ or AWQ.
void read_auto_round(const ConfigReader& reader, QuantizationConfig& config) {
  const std::string packing = find_word(reader, {"packing_format"});
  require_four_bits(reader, {"bits"}, "AutoRound");
  config.group_size = reader.int_or("group_size", 0, kGroup);
  const bool awq = packing == "auto_round:auto_awq" || packing == "auto_round:awq";
  const bool v1 = packing.empty() || packing == "auto_round:auto_gptq" ||
                  packing == "auto_round:gptq" || packing == "auto";
  const bool v2 = packing == "auto_round" || packing == "auto_round:gptqmodel";
  if (!awq && !v1 && !v2) {
    refuse(reader.json(), fmt::format("AutoRound weights of packing_format \"{}\"", packing));
  }
  if (reader.flag_or("sym", true)) {
    config.gptq_zeros = GptqZeros::unused;
  } else {
    config.gptq_zeros = v2 ? GptqZeros::as_stored : GptqZeros::minus_one;
  }
}

/// Everything that decides it is in the tensors.
void read_nothing(const ConfigReader& /*reader*/, QuantizationConfig& /*config*/) {}

struct Method {
  std::string_view name;
  void (*read)(const ConfigReader& reader, QuantizationConfig& config);
};

constexpr std::array<Method, 12> kMethods = {{
    {"fp8", read_fp8},
    {"compressed-tensors", read_compressed_tensors},
    {"modelopt", read_modelopt},
    {"modelopt_fp4", read_modelopt},
    {"modelopt_mixed", read_modelopt},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"auto-round", read_auto_round},
    {"auto_round", read_auto_round},
    {"mxfp4", read_nothing},
    {"mxfp8", read_fp8},
    {"nvfp4", read_nothing},
}};

QuantizationConfig parse_as(std::string_view method, const Json& config) {
  QuantizationConfig result;
  result.method = method;
  const auto* const known = std::ranges::find(kMethods, method, &Method::name);
  if (known != kMethods.end()) {
    known->read(ConfigReader(config), result);
    return result;
  }
  if (method == "bitsandbytes") {
    fail(ErrorKind::file,
         "{}: bitsandbytes weights are not read; load the checkpoint with transformers, call "
         "model.dequantize() and save_pretrained(), or {}",
         config.where(), kAdvice);
  }
  refuse(config, fmt::format("weights of quant_method \"{}\"", method));
}

std::optional<Json> find_in_config(const Json& config) {
  for (const auto& part : {std::optional<Json>(config), config.find("text_config")}) {
    if (!part) continue;
    for (const std::string_view key : kQuantizationMembers) {
      if (const auto found = part->find(key)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

QuantizationConfig parse_quantization_config(const Json& config) {
  const ConfigReader reader(config);
  std::string method = find_word(reader, {"quant_method", "method"});
  // compressed-tensors named itself only later.
  if (method.empty() && reader.find("config_groups")) method = "compressed-tensors";
  require(!method.empty(), ErrorKind::file, "{}: field \"quant_method\" is missing",
          config.where());
  return parse_as(method, config);
}

QuantizationConfig read_quantization_config(const std::string& directory) {
  const std::filesystem::path folder(directory);
  const auto read_beside = [&](std::string_view file) -> std::optional<Json> {
    const std::string path = (folder / file).string();
    if (!file_exists(path)) return std::nullopt;
    return Json::read_file(path, kMaxConfigBytes);
  };
  const auto config = read_beside("config.json");
  if (const auto found = config ? find_in_config(*config) : std::nullopt) {
    return parse_quantization_config(*found);
  }
  if (const auto modelopt = read_beside("hf_quant_config.json")) {
    return parse_as("modelopt", modelopt->at("quantization"));
  }
  if (const auto gptq = read_beside("quantize_config.json")) return parse_as("gptq", *gptq);
  if (const auto awq = read_beside("quant_config.json")) return parse_as("awq", *awq);
  return {};
}

}  // namespace moesaic
