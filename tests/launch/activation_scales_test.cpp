// Scales of activations that a checkpoint has (input_scale), seen from outside.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tests/launch/program.h"
#include "tests/support/quantized_checkpoint.h"

namespace moesaic::test {
namespace {

constexpr std::int64_t kLayers = 5;
constexpr std::int64_t kExperts = 16;

std::string scale_name(std::int64_t layer, std::int64_t expert, std::string_view matrix) {
  return fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.input_scale", layer, expert, matrix);
}

/// The demo model with experts in nvfp4, and scales of which those of experts 3 and 7 are the
/// largest.
class ActivationScales : public testing::Test {
 protected:
  ActivationScales() {
    quantize_checkpoint(kDemo, {.format = Format::nvfp4}, is_expert_weight, model_);
    std::map<std::string, float> scales;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (std::int64_t expert = 0; expert < kExperts; ++expert) {
        scales[scale_name(layer, expert, "gate")] = expert == 3 ? 0.004F : 0.001F;
        scales[scale_name(layer, expert, "up")] = 0.002F;
        scales[scale_name(layer, expert, "down")] = expert == 7 ? 0.0007F : 0.0003F;
      }
    }
    add_scalars(model_, scales);
    write_text(text_, "And God said,");
  }

  [[nodiscard]] Arguments score(const std::string& model, const Arguments& more) const {
    return joined({"score", "-m", model, "-f", text_, "--logits-out", logits_, "-t", "1",
                   "--numerics", "portable"},
                  more);
  }
  [[nodiscard]] std::string run(int ranks, const std::string& model, const Arguments& more) const {
    const ProgramResult result = run_program(ranks_command(ranks, score(model, more)));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.exit_code == 0 ? read_text(logits_) : "";
  }
  /// With one scale changed.
  void expect_refused(const std::string& name, float scale, const std::vector<std::string>& texts) {
    add_scalars(model_, {{name, scale}});
    expect_failure(run_moesaic(score(model_, kOfCheckpoint)), 3, texts);
  }

  const Arguments kOfCheckpoint = {"--nvfp4-activations", "nvfp4", "--activation-scales",
                                   "checkpoint"};
  TemporaryDirectory directory_;
  std::string model_ = directory_.path_of("model");
  std::string text_ = directory_.path_of("text.txt");
  std::string logits_ = directory_.path_of("logits");
};

TEST_F(ActivationScales, of_all_experts_count_on_any_number_of_ranks) {
  const std::string one = run(1, model_, kOfCheckpoint);
  EXPECT_FALSE(one == run(1, model_, {"--nvfp4-activations", "nvfp4"}));
  EXPECT_TRUE(one == run(3, model_, kOfCheckpoint));
  const std::string packed = directory_.path_of("packed");
  const ProgramResult converted = run_moesaic({"convert", "-m", model_, "-o", packed});
  ASSERT_EQ(converted.exit_code, 0) << converted.text();
  EXPECT_TRUE(one == run(2, packed, kOfCheckpoint));
  add_scalars(model_, {{scale_name(1, 5, "up"), 0.0039F}, {scale_name(2, 7, "down"), 0.0007F}});
  EXPECT_TRUE(one == run(1, model_, kOfCheckpoint)) << "not the largest";
  add_scalars(model_, {{scale_name(1, 5, "up"), 0.0041F}});
  EXPECT_FALSE(one == run(1, model_, kOfCheckpoint)) << "the largest";
}

TEST_F(ActivationScales, that_cannot_be_are_named) {
  const std::string name = scale_name(2, 6, "down");
  const std::string expert = "expert 6 of layer 2";
  expect_refused(name, 0, {expert, name, "holds 0, which is no scale of activations"});
  expect_refused(name, std::numeric_limits<float>::infinity(), {expert, name, "holds inf"});
  const Arguments plain = score(kDemo, joined(kOfCheckpoint, {"--expert-format", "nvfp4"}));
  expect_failure(run_moesaic(plain), 2, {"layers.0.experts.0.gate", "becomes nvfp4 when it is"});
  quantize_checkpoint(kDemo, {.format = Format::nvfp4}, is_expert_weight, model_ + "2");
  expect_failure(run_moesaic(score(model_ + "2", kOfCheckpoint)), 3,
                 {"expert 0 of layer 0", scale_name(0, 0, "gate"), "runtime needs none"});
  expect_failure(run_moesaic(score(model_, {"--activation-scales", "checkpoint"})), 2,
                 {"is for --nvfp4-activations nvfp4"});
}

}  // namespace
}  // namespace moesaic::test
