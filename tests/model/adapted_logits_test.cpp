// Models with an adapter: logits are PEFT's, whatever the ranks and wherever the weights come from;
// merged into a checkpoint they stay.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/json.h"
#include "comm/thread_communicator.h"
#include "src/lora/adapter_targets.h"
#include "src/lora/adapter_writer.h"
#include "src/model/merged_checkpoint.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/converted_model.h"
#include "tests/support/golden_adapters.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using test::error_message;
using test::read_text;
using test::replaced;
using test::TemporaryDirectory;
using test::write_text;

const std::string kData = MOESAIC_TEST_DATA;

struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
};

/// What PEFT computed.
std::vector<Sample> samples_of(const std::string& golden) {
  const SafetensorsFile file =
      SafetensorsFile::open(kData + "/adapters/" + golden + "/golden.safetensors");
  std::vector<Sample> samples;
  while (const TensorView* ids = file.find("input_ids." + std::to_string(samples.size()))) {
    const TensorView* logits = file.find("logits." + std::to_string(samples.size()));
    Sample& sample = samples.emplace_back();
    for (std::size_t i = 0; i < ids->bytes.size(); i += 8) {
      std::int64_t id = 0;
      std::memcpy(&id, ids->bytes.data() + i, 8);
      sample.tokens.push_back(static_cast<std::int32_t>(id));
    }
    sample.logits.resize(logits->bytes.size() / 4);
    std::memcpy(sample.logits.data(), logits->bytes.data(), logits->bytes.size());
  }
  return samples;
}

std::string model_of(const std::string& golden) {
  const Json json = Json::read_file(kData + "/adapters/" + golden + "/golden.json");
  return kData + "/models/" + json.at("model").as_string();
}

class AdaptedLogits : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] EngineSetup setup(Precision precision) const {
    return {.directory = model_of(GetParam()),
            .precision = precision,
            .isa = supported_isas().back(),
            .lora = kData + "/adapters/" + GetParam()};
  }
  std::vector<Sample> samples_ = samples_of(GetParam());
};

TEST_P(AdaptedLogits, InFp32TheyArePefts) {
  for (const Sample& sample : samples_) {
    const auto logits = logits_on_ranks(1, setup(Precision::f32), sample.tokens);
    EXPECT_LE(relative_l2(logits, sample.logits), 1e-5);
  }
}

TEST_P(AdaptedLogits, InBf16TheyAreNear) {
  const auto logits = logits_on_ranks(1, setup(Precision::bf16), samples_[0].tokens);
  EXPECT_LE(relative_l2(logits, samples_[0].logits), 2e-2);
}

TEST_P(AdaptedLogits, BitsDoNotDependOnRanksThreadsOrConversion) {
  EngineSetup other = setup(Precision::bf16);
  other.isa = Isa::scalar;
  const auto expected = logits_on_ranks(1, other, samples_[0].tokens);
  for (const Isa isa : tile_order_isas()) {
    for (const int ranks : {2, 3, 4}) {
      other.isa = isa;
      other.threads = ranks == 2 ? 3 : 1;
      EXPECT_EQ(logits_on_ranks(ranks, other, samples_[0].tokens), expected);
    }
  }
  other.placement = shuffled_placement(read_model_config(other.directory), 3);
  EXPECT_EQ(logits_on_ranks(3, other, samples_[0].tokens), expected);
  other.placement.reset();
  const TemporaryDirectory directory;
  other.directory = directory.path_of("packed");
  convert_model(model_of(GetParam()), {}, other.directory);
  EXPECT_EQ(logits_on_ranks(1, other, samples_[0].tokens), expected);
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdaptedLogits, testing::ValuesIn(test::kGoldenAdapters),
                         [](const auto& test_case) {
                           std::string name = test_case.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// Writes `model` with the adapter in `lora` merged into it to `to`.
void merge(const std::string& model, const std::string& lora, const std::string& to) {
  const ModelFiles files = ModelFiles::open(model);
  const ModelNames names = files.names(read_model_config(model));
  const AdapterFiles adapter = AdapterFiles::open(lora, adapter_sites(names));
  AdapterSet set(adapter.specs(), Format::bf16);
  adapter.read(set);
  const MergedCheckpoint merged(*files.checkpoint(), names, set);
  ThreadPool pool(2);
  std::int64_t written = 0;
  std::filesystem::create_directories(to);
  for (std::int64_t shard = 0; shard < merged.num_shards(); ++shard) {
    merged.write_shard(shard, to, pool, [&](std::int64_t done) { written = done; });
  }
  merged.write_texts(to);
  EXPECT_EQ(written, merged.bytes());
}

TEST_P(AdaptedLogits, MergedIntoTheCheckpointTheyStay) {
  const TemporaryDirectory directory;
  merge(model_of(GetParam()), kData + "/adapters/" + GetParam(), directory.path());
  const EngineSetup merged{
      .directory = directory.path(), .precision = Precision::f32, .isa = supported_isas().back()};
  std::vector<double> distances;  // of weights in bf16
  for (const Sample& sample : samples_) {
    distances.push_back(relative_l2(logits_on_ranks(1, merged, sample.tokens), sample.logits));
  }
  std::ranges::sort(distances);
  ASSERT_GE(distances.size(), 4U);
  EXPECT_LE(distances[distances.size() - 2],
            1e-2);  // where routers tie, one may have other experts
}

/// Element `index` of a matrix.
double element(const TensorView& from, std::int64_t index) {
  float read = 0;
  MatrixSource(TensorView{from.name,
                          from.dtype,
                          {std::int64_t{1} * from.shape[0] * from.shape[1], 1},
                          from.bytes,
                          from.file})
      .read_rows(index, 1, std::span(&read, 1));
  return static_cast<double>(read);
}

/// Expects some elements of bf16(W + scale B A), where the factors have rank 2.
void expect_sums(const TensorView& before, const TensorView& after, const TensorView& a,
                 const TensorView& b, double scale) {
  const std::int64_t in = before.shape[1];
  for (const std::int64_t at : {std::int64_t{0}, in + 3, before.shape[0] * in - 1}) {
    double sum = element(before, at);
    for (std::int64_t r = 0; r < 2; ++r) {
      sum += scale * element(b, at / in * 2 + r) * element(a, r * in + at % in);
    }
    EXPECT_EQ(element(after, at),
              static_cast<double>(to_float(to_bfloat16(static_cast<float>(sum)))))
        << before.name << " " << at;
  }
}

/// Merges an adapter of single modules, and returns how many matrices it changed.
std::int64_t expect_exactly_merged(const std::string& golden, double scale) {
  const TemporaryDirectory directory;
  merge(model_of(golden), kData + "/adapters/" + golden, directory.path());
  const Checkpoint before = Checkpoint::open(model_of(golden));
  const Checkpoint after = Checkpoint::open(directory.path());
  EXPECT_EQ(before.names(), after.names());
  const SafetensorsFile adapter =
      SafetensorsFile::open(kData + "/adapters/" + golden + "/adapter_model.safetensors");
  std::int64_t adapted = 0;
  for (const TensorView* tensor : before.tensors()) {
    const std::string module =
        "base_model.model." + tensor->name.substr(0, tensor->name.rfind('.')) + ".lora_";
    const TensorView* a = adapter.find(module + "A.weight");
    if (a == nullptr) {
      EXPECT_TRUE(std::ranges::equal(after.at(tensor->name).bytes, tensor->bytes)) << tensor->name;
      continue;
    }
    ++adapted;
    expect_sums(*tensor, after.at(tensor->name), *a, *adapter.find(module + "B.weight"), scale);
  }
  EXPECT_EQ(adapted, static_cast<std::int64_t>(adapter.tensors().size()) / 2);
  return adapted;
}

TEST(MergedCheckpoint, AdaptedMatricesAreBf16OfTheSumAndOthersAreCopied) {
  EXPECT_EQ(expect_exactly_merged("mixtral-some", 1), 2 * 7);
  (void)expect_exactly_merged("deepseek_v3", 2);
  (void)expect_exactly_merged("qwen3_next", 2);
}

/// A new adapter on everything in `model`, or what `targets` names, with B that is not zero.
void make_adapter(const std::string& model, const std::string& to,
                  const std::string& targets = "attention,experts,shared,dense") {
  const std::vector<AdapterSite> sites =
      adapter_sites(ModelFiles::open(model).names(read_model_config(model)));
  std::vector<AdapterSpec> specs;
  for (const AdapterSite& site : choose_sites(sites, targets)) {
    specs.push_back({.site = site, .rank = 3, .alpha = 6, .scale = 2});
  }
  AdapterSet set(specs, Format::bf16);
  specs.clear();
  for (std::int64_t i = 0; i < set.size(); ++i) specs.push_back(set.spec(i));
  initialize(set, 1);
  std::mt19937 random(2);
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const MatrixView<float> b = set.factors(i).b;
    std::generate_n(b.data(), b.rows() * b.cols(),
                    [&] { return static_cast<float>(random() % 2001) / 1e4F - 0.1F; });
  }
  save_adapter(to, {{}, specs, sites}, set);
}

/// Merges a new adapter, of all that can have one, into `name`, one of models,
/// and compares logits with those of both.
void expect_merged_like_unmerged(const std::string& name, const TemporaryDirectory& directory,
                                 const std::string& targets = "attention,experts,shared,dense") {
  const std::string model = kData + "/models/" + name;
  make_adapter(model, directory.path_of("lora"), targets);
  merge(model, directory.path_of("lora"), directory.path_of("merged"));
  const std::vector<std::int32_t> tokens =
      read_golden_logits(model + "/golden.safetensors").input_ids;
  const EngineSetup unmerged{.directory = model,
                             .precision = Precision::f32,
                             .isa = supported_isas().back(),
                             .lora = directory.path_of("lora")};
  const EngineSetup merged{.directory = directory.path_of("merged"),
                           .precision = Precision::f32,
                           .isa = supported_isas().back()};
  const auto expected = logits_on_ranks(1, unmerged, tokens);
  EXPECT_LE(relative_l2(logits_on_ranks(1, merged, tokens), expected), 2e-2) << name;
  EngineSetup bare = unmerged;
  bare.lora.clear();
  EXPECT_GE(relative_l2(logits_on_ranks(1, bare, tokens), expected), 0.1) << name;
}

TEST(MergedCheckpoint, QuantisedWeightsBecomePlainOnes) {
  for (const std::string name :
       {"qwen3_moe-nvfp4", "mixtral-gptq-order", "qwen3_moe-fp8-block", "deepseek_v3-fp8-block"}) {
    const TemporaryDirectory directory;
    expect_merged_like_unmerged(name, directory);
    EXPECT_FALSE(Json::read_file(directory.path_of("merged") + "/config.json")
                     .contains("quantization_config"));
  }
}

// Those of decays have a test of their own: all later tokens meet what rounding does to them.
TEST(MergedCheckpoint, ProjectionsOfGatedLayersAreThere) {
  for (const std::string name : {"qwen3_next-v4", "qwen3_5_moe-v5"}) {
    expect_merged_like_unmerged(name, TemporaryDirectory(), "(?!.*in_proj_(ba|b|a)$).*");
  }
}

// Its rows belong to two weights of the model.
TEST(MergedCheckpoint, AnAdapterOfKvBIsAddedToTheWholeTensor) {
  const std::string model = kData + "/models/deepseek_v3-fp8-block";
  const std::string module = "model.layers.1.self_attn.kv_b_proj";
  const TemporaryDirectory directory;
  make_adapter(model, directory.path_of("lora"), ".*layers.1.self_attn.(kv_b|o)_proj");
  const ModelNames names = ModelFiles::open(model).names(read_model_config(model));
  const AdapterFiles lora = AdapterFiles::open(directory.path_of("lora"), adapter_sites(names));
  merge(model, directory.path_of("lora"), directory.path_of("merged"));
  AdapterSet set(lora.specs(), Format::bf16);
  lora.read(set);
  const auto spec =
      std::ranges::find(lora.specs(), module, [](const AdapterSpec& of) { return of.site.module; });
  const AdapterFactors<float> factors = set.factors(spec - lora.specs().begin());
  const TensorSlice slice = matrix_slice(module + ".weight", spec->site.out, spec->site.in);
  const Checkpoint before = Checkpoint::open(model);
  const Checkpoint after = Checkpoint::open(directory.path_of("merged"));
  std::vector<float> row(static_cast<std::size_t>(slice.cols));
  std::vector<float> now(row.size());
  for (std::int64_t r = 0; r < slice.rows; ++r) {
    MatrixSource(before, slice).read_rows(r, 1, std::span(row));
    MatrixSource(after, slice).read_rows(r, 1, std::span(now));
    for (std::size_t i = 0; i < row.size(); ++i) {
      double sum = row[i];
      for (std::int64_t k = 0; k < factors.a.rows(); ++k) {
        sum += static_cast<double>(spec->scale * factors.b(r, k)) *
               factors.a(k, static_cast<std::int64_t>(i));
      }
      ASSERT_NEAR(now[i], sum, 1e-6 + 0.004 * std::abs(sum)) << r << " " << i;
    }
  }
}

TEST(MergedCheckpoint, ExpertsThatLieAcrossStayThere) {
  const TemporaryDirectory directory;
  expect_merged_like_unmerged("gpt_oss-v4", directory);
  const std::string model = kData + "/models/gpt_oss-v4";
  make_adapter(model, directory.path_of("lora"), R"(.*layers\.1\..*experts\.2\.up_proj)");
  merge(model, directory.path_of("lora"), directory.path_of("one"));
  const Checkpoint before = Checkpoint::open(model);
  const Checkpoint after = Checkpoint::open(directory.path_of("one"));
  const TensorView& was = before.at("model.layers.1.mlp.experts.gate_up_proj");
  const TensorView& is = after.at(was.name);
  EXPECT_EQ(is.shape, was.shape);
  const std::int64_t width = was.shape[2];
  const std::int64_t of_expert = was.shape[1] * width;
  std::int64_t changed = 0;
  for (std::int64_t i = 0; i < 6 * of_expert; ++i) {
    const auto at = static_cast<std::size_t>(2 * i);  // bf16
    const bool is_same = was.bytes[at] == is.bytes[at] && was.bytes[at + 1] == is.bytes[at + 1];
    changed += is_same ? 0 : 1;
    ASSERT_TRUE(is_same || (i / of_expert == 2 && i % 2 == 1)) << "only odd columns are of ups";
  }
  EXPECT_GT(changed, of_expert / 3);
}

TEST(MergedCheckpoint, ExpertsInBlocksBecomePlainOnesThatLieAcross) {
  const TemporaryDirectory directory;
  expect_merged_like_unmerged("gpt_oss-mxfp4", directory);
  const Checkpoint merged = Checkpoint::open(directory.path_of("merged"));
  const ModelConfig config = read_model_config(directory.path_of("merged"));
  const std::vector<std::int64_t> down = {
      config.num_experts, config.layers[0].feed_forward->sizes().expert_width, config.hidden_size};
  EXPECT_EQ(merged.at("model.layers.0.mlp.experts.down_proj").shape, down);
  EXPECT_FALSE(merged.contains("model.layers.0.mlp.experts.down_proj_blocks"));
  EXPECT_FALSE(Json::read_file(directory.path_of("merged") + "/config.json")
                   .contains("quantization_config"));
}

TEST(MergedCheckpoint, ItsConfigSaysNothingOfQuantisationUnderAnyNameAndPlace) {
  const std::string model = kData + "/models/qwen3_moe-fp8-block";
  const std::string config = read_text(model + "/config.json");
  const std::string older = replaced(config, "\"quantization_config\"", "\"compression_config\"");
  const TemporaryDirectory directory;
  make_adapter(model, directory.path_of("lora"));
  const std::string copy = directory.path_of("model");
  std::filesystem::copy(model, copy);
  for (const std::string& text : {older, "{\"text_config\": " + config + "}"}) {
    write_text(copy + "/config.json", text);
    const std::string merged = directory.path_of("merged");
    merge(copy, directory.path_of("lora"), merged);
    const std::string written = read_text(merged + "/config.json");
    EXPECT_EQ(written.find("weight_block_size"), std::string::npos) << written;
    EXPECT_EQ(read_model_config(merged).num_experts, read_model_config(model).num_experts);
  }
}

}  // namespace
}  // namespace moesaic
