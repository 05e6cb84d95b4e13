#include "src/checkpoint/quantization_config.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Blocks = std::vector<BlockSize>;

constexpr std::string_view kAdvice =
    "; take the unquantised checkpoint, or one that llm-compressor (compressed-tensors), ModelOpt, "
    "GPTQModel or AutoAWQ made";

QuantizationConfig parse(const std::string& text) {
  return parse_quantization_config(Json::parse(text, "q"));
}

std::string refusal(const std::string& text) {
  return test::error_message([&] { (void)parse(text); });
}

TEST(QuantizationConfig, reads_fp8) {
  const auto config = parse(R"({"quant_method": "fp8", "fmt": "e4m3",
    "activation_scheme": "dynamic", "weight_block_size": [128, 64], "scale_fmt": "ue8m0"})");
  EXPECT_EQ(config.method, "fp8");
  EXPECT_EQ(config.blocks, (Blocks{{128, 64}}));
  EXPECT_EQ(parse(R"({"quant_method": "fp8", "weight_block_size": null})").blocks, Blocks{});
  EXPECT_EQ(refusal(R"({"quant_method": "fp8", "fmt": "e5m2"})"),
            "q: fp8 weights of type \"e5m2\" are not read" + std::string(kAdvice));
  EXPECT_EQ(refusal(R"({"quant_method": "fp8", "weight_block_size": [128]})"),
            "q: weight_block_size: expected [rows, columns], found 1 elements");
  EXPECT_EQ(refusal(R"({"quant_method": "fp8", "weight_block_size": [128, 0]})"),
            "q: weight_block_size[1]: expected 1 to 1048576, found 0");
}

TEST(QuantizationConfig, reads_compressed_tensors) {
  const auto config = parse(R"({"config_groups": {
      "group_0": {"format": "float-quantized",
                  "weights": {"num_bits": 8, "strategy": "block", "block_structure": [128, 128]}},
      "group_1": {"weights": {"block_structure": "128x128"}, "targets": ["Linear"]}},
    "format": "mixed-precision", "sparsity_config": {}, "transform_config": {}})");
  EXPECT_EQ(config.method, "compressed-tensors");
  EXPECT_EQ(config.blocks, (Blocks{{128, 128}}));
  EXPECT_EQ(
      refusal(R"({"quant_method": "compressed-tensors", "format": "marlin-24"})"),
      "q: compressed-tensors weights of format \"marlin-24\" are not read" + std::string(kAdvice));
  EXPECT_EQ(refusal(R"({"quant_method": "compressed-tensors",
                        "sparsity_config": {"format": "sparse-24-bitmask"}})"),
            "q: sparsity_config: sparse weights (\"sparse-24-bitmask\") are not read" +
                std::string(kAdvice));
  EXPECT_EQ(refusal(R"({"quant_method": "compressed-tensors",
                        "transform_config": {"config_groups": {"u": {"type": "hadamard"}}}})"),
            "q: transform_config.config_groups: weights that want their inputs transformed "
            "(SpinQuant, QuIP) are not read" +
                std::string(kAdvice));
}

TEST(QuantizationConfig, reads_modelopt_whatever_the_case_of_its_algorithm) {
  EXPECT_EQ(parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").blocks, Blocks{});
  for (const std::string algorithm : {"fp8_pb_wo", "FP8_PB_WO", "FP8_BLOCK_SCALES"}) {
    const auto config =
        parse(R"({"quant_method": "modelopt", "quant_algo": ")" + algorithm + "\"}");
    EXPECT_EQ(config.blocks, (Blocks{{128, 128}})) << algorithm;
  }
  EXPECT_EQ(parse(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {"a": {"quant_algo": "FP8_PB_WO"}, "b": {"quant_algo": "NVFP4"}}})")
                .blocks,
            (Blocks{{128, 128}}));
  EXPECT_EQ(refusal(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                        "quantized_layers": {"a": {"quant_algo": "NVFP4_SVD"}}})"),
            "q: quantized_layers.a: ModelOpt weights of quant_algo \"nvfp4_svd\" are not read" +
                std::string(kAdvice));
}

TEST(QuantizationConfig, knows_how_gptq_stores_zero_points) {
  const auto zeros = [](const std::string& fields) {
    return parse(R"({"quant_method": "gptq", "bits": 4, "group_size": 128)" + fields + "}")
        .gptq_zeros;
  };
  EXPECT_EQ(zeros(""), GptqZeros::minus_one);
  EXPECT_EQ(zeros(R"(, "sym": false, "checkpoint_format": "gptq")"), GptqZeros::minus_one);
  EXPECT_EQ(zeros(R"(, "sym": false, "checkpoint_format": "gptq_v2")"), GptqZeros::as_stored);
  EXPECT_EQ(zeros(R"(, "sym": true, "checkpoint_format": "gptq_v2")"), GptqZeros::unused);
  EXPECT_EQ(refusal(R"({"quant_method": "gptq", "bits": 3})"),
            "q: 3-bit GPTQ weights are not read" + std::string(kAdvice));
  EXPECT_EQ(refusal(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})"),
            "q: GPTQ weights of checkpoint_format \"marlin\" are not read" + std::string(kAdvice));
}

TEST(QuantizationConfig, reads_auto_round_as_what_it_writes) {
  const auto zeros = [](const std::string& packing) {
    return parse(R"({"quant_method": "auto-round", "bits": 4, "sym": false, "packing_format": ")" +
                 packing + "\"}")
        .gptq_zeros;
  };
  EXPECT_EQ(zeros("auto_round:auto_gptq"), GptqZeros::minus_one);
  EXPECT_EQ(zeros("auto_round"), GptqZeros::as_stored);
  EXPECT_EQ(refusal(R"({"quant_method": "auto-round", "packing_format": "mlx"})"),
            "q: AutoRound weights of packing_format \"mlx\" are not read" + std::string(kAdvice));
}

TEST(QuantizationConfig, refuses_other_layouts_of_awq) {
  EXPECT_EQ(parse(R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM"})")
                .group_size,
            64);
  EXPECT_EQ(
      refusal(R"({"quant_method": "awq", "bits": 4, "version": "GEMV"})"),
      "q: AWQ weights of version \"gemv\" (only \"gemm\" is) are not read" + std::string(kAdvice));
}

TEST(QuantizationConfig, says_what_to_do_about_methods_that_are_not_read) {
  EXPECT_EQ(refusal(R"({"quant_method": "hqq"})"),
            "q: weights of quant_method \"hqq\" are not read" + std::string(kAdvice));
  EXPECT_EQ(refusal(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"),
            "q: bitsandbytes weights are not read; load the checkpoint with transformers, call "
            "model.dequantize() and save_pretrained(), or take the unquantised checkpoint, or one "
            "that llm-compressor (compressed-tensors), ModelOpt, GPTQModel or AutoAWQ made");
  EXPECT_EQ(refusal("{}"), "q: field \"quant_method\" is missing");
}

TEST(QuantizationConfig, is_found_in_config_json_or_beside_it) {
  const test::TemporaryDirectory directory;
  const auto method = [&] { return read_quantization_config(directory.path()).method; };
  EXPECT_EQ(method(), "");
  test::write_text(directory.path_of("quant_config.json"),
                   R"({"w_bit": 4, "q_group_size": 128, "zero_point": true, "version": "GEMM"})");
  EXPECT_EQ(method(), "awq");
  EXPECT_EQ(read_quantization_config(directory.path()).group_size, 128);
  test::write_text(directory.path_of("quantize_config.json"), R"({"bits": 4, "group_size": 32})");
  EXPECT_EQ(method(), "gptq");
  test::write_text(
      directory.path_of("hf_quant_config.json"),
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_EQ(method(), "modelopt");
  test::write_text(directory.path_of("config.json"), R"({"model_type": "x"})");
  EXPECT_EQ(method(), "modelopt");
  test::write_text(directory.path_of("config.json"),
                   R"({"compression_config": {"quant_method": "compressed-tensors"}})");
  EXPECT_EQ(method(), "compressed-tensors");
  test::write_text(directory.path_of("config.json"),
                   R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})");
  EXPECT_EQ(method(), "fp8");
}

}  // namespace
}  // namespace moesaic
