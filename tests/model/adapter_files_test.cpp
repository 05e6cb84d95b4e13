// Adapters that PEFT wrote for the models of tests/data/models, read and written again.
#include "src/lora/adapter_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "comm/thread_communicator.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/lora/adapter_targets.h"
#include "src/lora/adapter_writer.h"
#include "src/model/model_adapters.h"
#include "src/parallel/expert_placement.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/golden_adapters.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::read_text;
using test::replaced;
using test::TemporaryDirectory;
using test::write_text;

const std::string kAdapters = MOESAIC_TEST_DATA "/adapters/";

std::vector<AdapterSite> sites_of(const std::string& golden) {
  const Json json = Json::read_file(kAdapters + golden + "/golden.json");
  const std::string model = MOESAIC_TEST_DATA "/models/" + json.at("model").as_string();
  return adapter_sites(ModelFiles::open(model).names(read_model_config(model)));
}

/// Reads the adapter in `from` on `ranks` ranks and saves it in `layout`.
void copy_adapter(const std::string& from, const std::string& to, AdapterLayout layout,
                  std::span<const AdapterSite> sites, int ranks) {
  run_thread_ranks(ranks, [&](Communicator& world) {
    const AdapterFiles files = AdapterFiles::open(from, sites);
    const std::int64_t experts = std::ranges::max(sites, {}, &AdapterSite::num_experts).num_experts;
    const HeldExperts held(ExpertPlacement(experts, ranks), world.rank());
    AdapterSet set(specs_of_rank(files.specs(), held), Format::f32);
    files.read(set);
    AdapterDescription description = files.description();
    description.layout = layout;
    const AdapterExchange exchange(set, files.specs(), world, true);
    save_adapter(to, {description, files.specs(), sites}, set.masters(), exchange);
  });
}

std::map<std::string, std::string> tensors_in(const std::string& directory) {
  std::map<std::string, std::string> tensors;
  const SafetensorsFile file = SafetensorsFile::open(directory + "/adapter_model.safetensors");
  for (const TensorView& tensor : file.tensors()) {
    tensors[tensor.name + format_shape(tensor.shape)] =
        std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return tensors;
}

/// Values by module, in whatever layout they are kept.
std::map<std::string, std::vector<float>> values_in(const std::string& directory,
                                                    std::span<const AdapterSite> sites) {
  const AdapterFiles files = AdapterFiles::open(directory, sites);
  AdapterSet set(files.specs(), Format::f32);
  files.read(set);
  std::map<std::string, std::vector<float>> values;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const AdapterFactors<float> its = set.factors(i);
    std::vector<float>& all = values[set.spec(i).site.module];
    all = {static_cast<float>(set.spec(i).alpha), set.spec(i).scale};
    all.insert(all.end(), its.a.data(), its.a.data() + its.a.rows() * its.a.cols());
    all.insert(all.end(), its.b.data(), its.b.data() + its.b.rows() * its.b.cols());
  }
  return values;
}

class AdapterFilesOf : public testing::TestWithParam<std::string> {
 protected:
  std::string from_ = kAdapters + GetParam();
  std::vector<AdapterSite> sites_ = sites_of(GetParam());
  TemporaryDirectory directory_;
};

TEST_P(AdapterFilesOf, WrittenAgainTheyAreWhatPeftWroteOnAnyRanks) {
  const AdapterLayout layout = AdapterFiles::open(from_, sites_).description().layout;
  const std::map<std::string, std::string> expected = tensors_in(from_);
  std::string first;
  for (const int ranks : {1, 3}) {
    const std::string to = directory_.path_of(std::to_string(ranks));
    copy_adapter(from_, to, layout, sites_, ranks);
    EXPECT_EQ(tensors_in(to), expected);
    EXPECT_EQ(values_in(to, sites_), values_in(from_, sites_));
    const std::string bytes =
        read_text(to + "/adapter_model.safetensors") + read_text(to + "/adapter_config.json");
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST_P(AdapterFilesOf, ThereAndBackThroughTheOtherLayoutValuesStay) {
  const std::string other = directory_.path();
  const bool was_fused =
      AdapterFiles::open(from_, sites_).description().layout == AdapterLayout::transformers5;
  const AdapterLayout to = was_fused ? AdapterLayout::transformers4 : AdapterLayout::transformers5;
  if (GetParam() == "olmoe-patterns") {
    const std::string message =
        error_message([&] { copy_adapter(from_, other, to, sites_, 1); }, ErrorKind::usage);
    EXPECT_NE(message.find("cannot be fused in one module"), std::string::npos) << message;
    return;
  }
  copy_adapter(from_, other, to, sites_, 1);
  EXPECT_EQ(values_in(other, sites_), values_in(from_, sites_)) << "and no other modules";
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterFilesOf, testing::ValuesIn(test::kGoldenAdapters),
                         [](const auto& test_case) {
                           std::string name = test_case.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(AdapterFiles, NumbersFollowThePatterns) {
  const AdapterFiles files =
      AdapterFiles::open(kAdapters + "olmoe-patterns", sites_of("olmoe-patterns"));
  std::map<std::string, const AdapterSpec*> specs;
  for (const AdapterSpec& spec : files.specs()) specs[spec.site.module] = &spec;
  EXPECT_EQ(specs.at("model.layers.0.self_attn.q_proj")->rank, 5);
  EXPECT_EQ(specs.at("model.layers.1.mlp.experts.3.down_proj")->rank, 1);
  EXPECT_EQ(specs.at("model.layers.1.mlp.experts.4.down_proj")->rank, 2);
  EXPECT_EQ(specs.at("model.layers.0.mlp.experts.7.up_proj")->alpha, 1.5);
  EXPECT_FLOAT_EQ(specs.at("model.layers.0.mlp.experts.7.up_proj")->scale, 0.75F);
  EXPECT_EQ(specs.count("model.layers.0.self_attn.k_proj"), 0U);
}

TEST(AdapterFiles, FusedGatesAndUpsShareAOnlyWhereBHasNoBlocks) {
  const auto shared = [](const AdapterFiles& files) {
    return std::ranges::count_if(files.specs(), &AdapterSpec::shares_a);
  };
  const auto mixtral = sites_of("mixtral-fused");
  EXPECT_EQ(shared(AdapterFiles::open(kAdapters + "mixtral-fused", mixtral)), 2 * 8);
  const auto granite = sites_of("granitemoe-joined");
  EXPECT_EQ(shared(AdapterFiles::open(kAdapters + "granitemoe-joined", granite)), 3 * 8);
  const TemporaryDirectory directory;
  const auto qwen = sites_of("qwen3_moe");
  copy_adapter(kAdapters + "qwen3_moe", directory.path(), AdapterLayout::transformers5, qwen, 1);
  EXPECT_EQ(shared(AdapterFiles::open(directory.path(), qwen)), 0);
}

/// Writes a new adapter of rank 2 for these targets, with this in its factors B.
void write_new_adapter(const std::string& to, const std::string& targets, AdapterLayout layout,
                       std::span<const AdapterSite> sites, float b) {
  std::vector<AdapterSpec> specs;
  for (const AdapterSite& site : choose_sites(sites, targets)) {
    specs.push_back({.site = site, .rank = 2, .alpha = 4, .scale = 2});
  }
  std::stable_partition(specs.begin(), specs.end(),
                        [](const AdapterSpec& spec) { return spec.site.expert < 0; });
  AdapterSet set(specs, Format::f32);
  initialize(set, 1);
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const MatrixView<float> factor = set.factors(i).b;
    std::fill_n(factor.data(), factor.rows() * factor.cols(), b);
  }
  save_adapter(to, {{.layout = layout}, specs, sites}, set);
}

TEST(AdapterFiles, PartsOfFusedModulesThatWereNoTargetsStayNone) {
  const TemporaryDirectory directory;
  const std::string first = directory.path_of("first");
  const std::string again = directory.path_of("again");
  for (const auto& [golden, layout] :
       {std::pair("granitemoe-joined", AdapterLayout::transformers4),
        std::pair("qwen3_moe", AdapterLayout::transformers5),
        std::pair("gpt_oss-experts4", AdapterLayout::transformers4),
        std::pair("gpt_oss-experts5", AdapterLayout::transformers5)}) {
    const std::vector<AdapterSite> sites = sites_of(golden);
    for (const std::string parts :
         {R"(gate_proj)", R"(\d+\.up_proj)", R"([02]\.(gate|up)_proj)", R"(1\.up_proj)",
          R"(0\.up_proj|.*1\.gate_proj|.*2\.down_proj)"}) {
      for (const float b : {0.0F, 1.0F}) {  // never trained, or trained
        const std::string targets = R"(.*\.q_proj|.*\.experts\..*)" + parts;
        write_new_adapter(first, targets, layout, sites, b);
        const AdapterFiles files = AdapterFiles::open(first, sites);
        EXPECT_EQ(files.specs().size(), choose_sites(sites, targets).size()) << golden << parts;
        copy_adapter(first, again, layout, sites, 2);
        for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"}) {
          EXPECT_EQ(read_text(again + file), read_text(first + file)) << golden << parts;
        }
      }
    }
  }
}

TEST(AdapterFiles, WrittenTargetsHitTheModulesOfTheFileAndNoOthers) {
  const TemporaryDirectory directory;
  const auto targets = [&](const std::string& golden, AdapterLayout layout) {
    copy_adapter(kAdapters + golden, directory.path(), layout, sites_of(golden), 1);
    const std::string text = read_text(directory.path_of("adapter_config.json"));
    const std::size_t begin = text.find("\"target_modules\"");
    return text.substr(begin, text.find("  \"use_rslora\"") - begin);
  };
  EXPECT_EQ(targets("qwen2_moe-rslora-idle", AdapterLayout::transformers4),
            "\"target_modules\": [\"down_proj\", \"gate_proj\", \"k_proj\", \"o_proj\", "
            "\"q_proj\", \"up_proj\", \"v_proj\"],\n");
  EXPECT_EQ(targets("qwen2_moe-rslora-idle", AdapterLayout::transformers5),
            "\"target_modules\": [\"k_proj\", \"o_proj\", \"q_proj\", \"v_proj\"],\n"
            "  \"target_parameters\": [\"down_proj.weight\", \"experts.down_proj\", "
            "\"experts.gate_up_proj\", \"gate_proj.weight\", \"up_proj.weight\"],\n");
  EXPECT_EQ(targets("mixtral-some", AdapterLayout::transformers4),
            "\"target_modules\": [\"experts.0.w1\", \"experts.0.w2\", \"experts.0.w3\", "
            "\"experts.2.w2\", \"experts.3.w1\", \"k_proj\", \"o_proj\"],\n");
  EXPECT_EQ(targets("granitemoe-joined", AdapterLayout::transformers4),
            "\"target_modules\": [\"k_proj\", \"o_proj\", \"q_proj\", \"v_proj\"],\n"
            "  \"target_parameters\": [\"input_linear.weight\", \"output_linear.weight\"],\n");
}

TEST(AdapterFiles, HalvesAndRoundedValuesAreRead) {
  // The values of q_proj of layer 0 and no others, in other types.
  const auto sites = sites_of("mixtral-fused");
  const TemporaryDirectory directory;
  const std::string config =
      replaced(read_text(kAdapters + "mixtral-fused/adapter_config.json"),
               "\"layers_to_transform\": null", "\"layers_to_transform\": 0");
  const std::size_t begin = config.find("\"target_modules\"");
  const std::size_t end = config.find("\"task_type\"");
  write_text(directory.path_of("adapter_config.json"),
             config.substr(0, begin) + "\"target_modules\": \".*q_proj\", " + config.substr(end));
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  for (const DType dtype : {DType::f16, DType::bf16}) {
    test::write_tiny_safetensors(
        directory.path_of("adapter_model.safetensors"),
        {{module + "A.weight", dtype, {2, 64}}, {module + "B.weight", dtype, {64, 2}}});
    const auto values = values_in(directory.path(), sites);
    ASSERT_EQ(values.size(), 1U);
    // Bytes 0, 1, 2, 3: 0x0100, 0x0302.
    const std::vector<float>& read = values.begin()->second;
    const auto value = [&](std::uint16_t bits) {
      return dtype == DType::f16 ? half_to_float(bits) : to_float(BFloat16{bits});
    };
    EXPECT_EQ(read[2], value(0x0100));
    EXPECT_EQ(read[3], value(0x0302));
  }
}

struct Refusal {
  std::string from;
  std::string to;
  std::string message;
};

TEST(AdapterFiles, WhatIsNoPlainLoraIsRefusedByField) {
  const auto sites = sites_of("mixtral-fused");
  const std::string config = read_text(kAdapters + "mixtral-fused/adapter_config.json");
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("adapter_config.json");
  write_text(directory.path_of("adapter_model.safetensors"),
             read_text(kAdapters + "mixtral-fused/adapter_model.safetensors"));
  const std::vector<Refusal> refusals = {
      {"\"use_dora\": false", "\"use_dora\": true", "use_dora"},
      {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias is \"all\""},
      {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
      {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "peft_type is \"IA3\""},
      {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "fan_in_fan_out"},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"",
       "adapter_config.json: init_lora_weights is \"pissa\""},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_16\"",
       "init_lora_weights is \"pissa_niter_16\""},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"OLoRA\"",
       "init_lora_weights is \"OLoRA\""},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"corda\"",
       "init_lora_weights is \"corda\""},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"loftq\"",
       "init_lora_weights is \"loftq\""},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": 1", "init_lora_weights"},
      {"\"r\": 2", "\"r\": 0", "r is 0, not from 1"},
      {"\"r\": 2", "\"r\": 3", "not [3, 64] (rank 3 by adapter_config.json)"},
      {"\"lora_alpha\": 4", "\"lora_alpha\": -4", "lora_alpha is -4"},
      {"\"rank_pattern\": {}", "\"rank_pattern\": {\"(\": 1}", "not a pattern"},
      {"\"o_proj\"", "\"k_proj\"", "no \"base_model.model.model.layers.0.self_attn.k_proj.lora_A"},
      {"\"o_proj\"", "\"q_proj\"",
       "\"base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight\" is for no module"},
      {"\"layers_to_transform\": null", "\"layers_to_transform\": [1]", "is for no module"},
      {"\"exclude_modules\": null", "\"exclude_modules\": [\"o_proj\"]",
       "o_proj.lora_A.weight\" is for"},
      {"[\n    \"q_proj\",\n    \"o_proj\"\n  ]", "\"all-linear\"",
       "no \"base_model.model.model.layers.0.self_attn.k_proj.lora_A"},
  };
  for (const Refusal& refusal : refusals) {
    write_text(path, replaced(config, refusal.from, refusal.to));
    const std::string message =
        error_message([&] { (void)AdapterFiles::open(directory.path(), sites); });
    EXPECT_NE(message.find(refusal.message), std::string::npos) << refusal.to << ": " << message;
    EXPECT_NE(message.find("adapter_"), std::string::npos) << message;
  }
}

TEST(AdapterFiles, StartsThatLeaveTheBaseAsItIsArePlainLora) {
  const auto sites = sites_of("mixtral-fused");
  const std::string config = read_text(kAdapters + "mixtral-fused/adapter_config.json");
  const TemporaryDirectory directory;
  write_text(directory.path_of("adapter_model.safetensors"),
             read_text(kAdapters + "mixtral-fused/adapter_model.safetensors"));
  for (const std::string start :
       {"true", "false", "null", "\"gaussian\"", "\"Gaussian\"", "\"eva\"", "\"orthogonal\""}) {
    write_text(directory.path_of("adapter_config.json"),
               replaced(config, "\"init_lora_weights\": true", "\"init_lora_weights\": " + start));
    EXPECT_NO_THROW((void)AdapterFiles::open(directory.path(), sites)) << start;
  }
}

TEST(AdapterFiles, ValuesThatAreNotFiniteAreRefusedByKey) {
  const auto sites = sites_of("mixtral-fused");
  const TemporaryDirectory directory;
  write_text(directory.path_of("adapter_config.json"),
             read_text(kAdapters + "mixtral-fused/adapter_config.json"));
  std::string bytes = read_text(kAdapters + "mixtral-fused/adapter_model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - 4, &nan, 4);  // the last value of layer 1's q_proj
  write_text(directory.path_of("adapter_model.safetensors"), bytes);
  const std::string message = error_message([&] { (void)values_in(directory.path(), sites); });
  EXPECT_NE(
      message.find("layers.1.self_attn.q_proj.lora_B.weight\" holds a value that is not finite"),
      std::string::npos)
      << message;
}

TEST(AdapterFiles, AnotherModelsAdapterIsRefused) {
  const auto sites = sites_of("qwen3_moe");
  const std::string message =
      error_message([&] { (void)AdapterFiles::open(kAdapters + "qwen2_moe-rslora-idle", sites); });
  EXPECT_NE(message.find("lora_A.weight"), std::string::npos) << message;
}

TEST(AdapterFiles, AModuleThatFusesGateAndUpAsNoOtherDoesIsRefused) {
  const auto sites = sites_of("mixtral-some");
  const TemporaryDirectory directory;
  const std::string from = directory.path_of("from");
  const std::string to = directory.path_of("to");
  copy_adapter(kAdapters + "mixtral-some", from, AdapterLayout::transformers5, sites, 1);
  EXPECT_NO_THROW((void)values_in(from, sites));
  std::filesystem::copy(from, to);
  const SafetensorsFile file = SafetensorsFile::open(from + "/adapter_model.safetensors");
  std::vector<TensorSpec> specs;
  std::string fused;  // the last B of gates and ups, which are not those that tell how it is
  for (const TensorView& tensor : file.tensors()) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    if (tensor.name.ends_with("experts.base_layer.lora_B.weight")) {
      fused = std::max(fused, tensor.name);
    }
  }
  SafetensorsWriter writer(to + "/adapter_model.safetensors", specs);
  for (const TensorView& tensor : file.tensors()) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float), 1.0F);
    if (tensor.name != fused) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    writer.write(tensor.name, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
  const std::string message = error_message([&] { (void)values_in(to, sites); });
  EXPECT_NE(message.find("row 0 of \"" + fused + "\" fuses gate and up as no other module does"),
            std::string::npos)
      << message;
}

TEST(AdapterFiles, DropoutIsWrittenWherePeftHasIt) {
  const auto sites = sites_of("mixtral-some");
  const AdapterFiles files = AdapterFiles::open(kAdapters + "mixtral-some", sites);
  const auto dropout_in = [&](AdapterLayout layout) {
    const std::string text =
        peft_config_text({.layout = layout, .dropout = 0.25}, files.specs(), sites);
    return Json::parse(text, "config").at("lora_dropout").as_double();
  };
  EXPECT_EQ(dropout_in(AdapterLayout::transformers4), 0.25);
  EXPECT_EQ(dropout_in(AdapterLayout::transformers5), 0) << "there are parameters, which have none";
}

}  // namespace
}  // namespace moesaic
