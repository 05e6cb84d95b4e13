// moesaic sft of models whose attention, shared experts, plain MLPs or output matrix are quantised:
// gradients are those of float32 on the same values, and the same bytes on any ranks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/model/weight_layout.h"
#include "tests/launch/sft_program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/model_copies.h"
#include "tests/support/quantized_checkpoint.h"

namespace moesaic::test {
namespace {

using Stacks = std::vector<std::vector<std::string>>;

/// Of the fixture of qwen2_moe, whose second layer has no experts, all that --dense-format means;
/// queries, keys and values are one matrix.
Stacks dense_matrices() {
  Stacks stacks;
  for (const int layer : {0, 1, 2}) {
    const auto name = [&](const std::string& matrix) {
      return fmt::format("model.layers.{}.{}.weight", layer, matrix);
    };
    stacks.push_back(
        {name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj")});
    stacks.push_back({name("self_attn.o_proj")});
    const std::string mlp = layer == 1 ? "mlp." : "mlp.shared_expert.";
    for (const char* const matrix : {"gate_proj", "up_proj", "down_proj"}) {
      stacks.push_back({name(mlp + matrix)});
    }
  }
  return stacks;
}

/// How far gradients are from the expected ones, by the length of those.
struct Distances {
  double all = 0;  // of all together
  double most = 0;
  std::string farthest;  // the tensor
};

Distances distances(const std::string& file, const std::string& expected) {
  const SafetensorsFile found = SafetensorsFile::open(file);
  const SafetensorsFile wanted = SafetensorsFile::open(expected);
  EXPECT_EQ(found.tensors().size(), wanted.tensors().size());
  Distances result;
  double all_differences = 0;
  double all_sizes = 0;
  for (const TensorView& tensor : wanted.tensors()) {
    const std::vector<float> a = numbers(*found.find(tensor.name));
    const std::vector<float> b = numbers(tensor);
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
      size += std::pow(static_cast<double>(b[i]), 2);
    }
    EXPECT_GT(size, 0) << tensor.name;
    all_differences += difference;
    all_sizes += size;
    const double distance = std::sqrt(difference / size);
    if (distance <= result.most) continue;
    result.most = distance;
    result.farthest = tensor.name;
  }
  result.all = std::sqrt(all_differences / all_sizes);
  return result;
}

class SftFormats : public testing::Test {
 protected:
  SftFormats() {
    copy_model("models/qwen2_moe-v4", model_);
    // Rounding does not decide which experts are chosen where all are.
    write_text(model_ + "/config.json",
               replaced(read_text(model_ + "/config.json"), "\"num_experts_per_tok\": 3",
                        "\"num_experts_per_tok\": 8"));
    std::string lines;
    for (int sample = 0; sample < 4; ++sample) {
      std::string ids;
      for (int i = 0; i < 24; ++i) {
        ids += fmt::format("{}{}", i == 0 ? "" : ", ", 3 + (i * i * 37 + sample * 101 + i) % 300);
      }
      lines += fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", ids, ids);
    }
    write_text(data_, lines);
  }

  /// The file of the gradients of a step; portable, so that every CPU is as near to the limits.
  [[nodiscard]] std::string gradients(const std::string& model, const Arguments& more,
                                      int ranks = 1) {
    const std::string file = directory_.path_of(fmt::format("gradients{}", files_++));
    const std::string adapter = kData + "/adapters/qwen2_moe-rslora-idle";
    const Arguments run = {"sft", "-m", model, "--data", data_, "-o", directory_.path_of("out")};
    const Arguments step = {"--lora", adapter, "--max-steps", "1", "--grad-out", file};
    const Arguments other = {"--overwrite", "--threads",   "1",      "--numerics",
                             "portable",    "--log-level", "warning"};
    expect_done(run_ranks(ranks, joined(joined(run, step), joined(other, more))));
    return file;
  }
  /// Those of every format are near those of float32 on the values that the format has.
  void expect_near(const std::string& option, const Stacks& stacks) {
    const std::string plain = read_text(gradients(model_, {}));
    for (const std::string_view name : kLayoutNames) {
      if (name == "bf16") continue;
      SCOPED_TRACE(option + " " + std::string(name));
      const Layout layout = *layout_from_name(name);
      const std::string rounded = directory_.path_of("rounded");
      round_checkpoint(model_, layout, stacks, rounded);
      const std::string expected = gradients(rounded, {"--precision", "fp32"});
      std::filesystem::remove_all(rounded);
      const Arguments quantized = {option, std::string(name)};
      const std::string found = gradients(model_, quantized);
      const Distances seen = distances(found, expected);
      // What meets int8 and int4 is rounded to int8, too, many times on the way.
      const bool has_int8_rows = layout.format == Format::int8 || layout.format == Format::int4;
      const bool is_wide = has_int8_rows && stacks.size() > 1;
      EXPECT_LE(seen.all, is_wide ? 0.06 : 0.02);
      EXPECT_LE(seen.most, is_wide ? 0.12 : 0.06) << seen.farthest;
      EXPECT_NE(read_text(found), plain);
      const Arguments again = joined(quantized, {"--recompute", "always"});
      EXPECT_EQ(read_text(gradients(model_, again, 2)), read_text(found));
    }
  }

  TemporaryDirectory directory_;
  std::string model_ = directory_.path_of("model");
  std::string data_ = directory_.path_of("data.jsonl");
  int files_ = 0;
};

TEST_F(SftFormats, GradientsOfQuantisedDenseMatricesAreThoseOfTheirValues) {
  expect_near("--dense-format", dense_matrices());
}

TEST_F(SftFormats, GradientsOfAQuantisedHeadAreThoseOfItsValues) {
  expect_near("--head-format", {{"lm_head.weight"}});
}

}  // namespace
}  // namespace moesaic::test
