#include "launch/input/sampling_choice.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

constexpr std::int64_t kVocab = 100;

SamplingChoice choose(std::vector<std::string> arguments, const GenerationDefaults& defaults = {},
                      const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "generate");
  return choose_sampling(parse_command(arguments, environment), defaults, kVocab);
}

GenerationDefaults of_model() {
  return {.do_sample = true,
          .temperature = 0.6,
          .top_k = 20,
          .top_p = 0.9,
          .min_p = {},
          .repetition_penalty = 1.05};
}

TEST(SamplingChoice, what_nobody_says_is_the_default) {
  const SamplingChoice choice = choose({});
  EXPECT_EQ(choice.options.temperature, 0.8);
  EXPECT_EQ(choice.options.top_k, 40);
  EXPECT_EQ(choice.options.top_p, 0.95);
  EXPECT_EQ(choice.text, "sampling: temp 0.8, top-k 40, top-p 0.95, seed 0 (default)");
}

TEST(SamplingChoice, the_model_comes_before_defaults_and_options_before_the_model) {
  const SamplingChoice model = choose({}, of_model());
  EXPECT_EQ(model.options.temperature, 0.6);
  EXPECT_EQ(model.options.top_k, 20);
  EXPECT_EQ(model.options.top_p, 0.9);
  EXPECT_EQ(model.options.repetition_penalty, 1.05);
  EXPECT_EQ(model.text,
            "sampling: temp 0.6, top-k 20, top-p 0.9, repeat-penalty 1.05 "
            "(generation_config.json); seed 0 (default)");
  // Also one that is given the value of the default.
  const SamplingChoice given =
      choose({"--temp", "0.8", "--min-p", "0.1", "-s", "3"}, of_model(), {{"MOESAIC_TOP_K", "5"}});
  EXPECT_EQ(given.options.temperature, 0.8);
  EXPECT_EQ(given.options.top_k, 5);
  EXPECT_EQ(given.options.top_p, 0.9);
  EXPECT_EQ(given.options.min_p, 0.1);
  EXPECT_EQ(given.options.seed, 3U);
  EXPECT_EQ(given.text,
            "sampling: top-p 0.9, repeat-penalty 1.05 (generation_config.json); temp 0.8, top-k 5, "
            "min-p 0.1, seed 3 (given)");
}

TEST(SamplingChoice, a_model_that_does_not_sample_is_greedy) {
  GenerationDefaults defaults = of_model();
  defaults.do_sample = false;
  const SamplingChoice greedy = choose({}, defaults);
  EXPECT_EQ(greedy.options.temperature, 0);
  EXPECT_EQ(greedy.text, "sampling: temp 0, repeat-penalty 1.05 (generation_config.json)");
  EXPECT_EQ(choose({"--temp", "0.5"}, defaults).options.temperature, 0.5);
}

TEST(SamplingChoice, penalties_and_bias_are_those_of_the_options) {
  const SamplingChoice choice =
      choose({"--repeat-penalty", "1.2", "--repeat-last-n", "64", "--presence-penalty", "0.5",
              "--frequency-penalty", "-0.25", "-l", "7+1.5", "--logit-bias", "8-inf"});
  EXPECT_EQ(choice.options.repetition_penalty, 1.2);
  EXPECT_EQ(choice.options.penalty_last_n, 64);
  EXPECT_EQ(choice.options.presence_penalty, 0.5);
  EXPECT_EQ(choice.options.frequency_penalty, -0.25);
  EXPECT_EQ(choice.options.logit_bias,
            (std::vector<LogitBias>{{7, 1.5F}, {8, -std::numeric_limits<float>::infinity()}}));
}

TEST(SamplingChoice, a_bias_is_told_once_a_token) {
  const SamplingChoice choice = choose({"-l", "7+1", "-l", "8-inf", "-l", "7+0.5", "-l", "8+1"});
  const Json bias = Json::parse(sampling_json(choice.options), "sampling").at("logit_bias");
  EXPECT_EQ(bias.size(), 2);
  EXPECT_EQ(bias.at("7").as_double(), 1.5);
  EXPECT_EQ(bias.at("8").as_string(), "-inf");
}

TEST(SamplingChoice, seeds_can_be_drawn) {
  const SamplingChoice one = choose({"--seed", "-1"});
  const SamplingChoice two = choose({"--seed", "-1"});
  EXPECT_NE(one.options.seed, two.options.seed) << "once in four billion times they are equal";
  EXPECT_NE(one.text.find("seed " + std::to_string(one.options.seed) + " (drawn)"),
            std::string::npos)
      << one.text;
}

TEST(SamplingChoice, what_is_out_of_range_is_refused) {
  const auto message = [](const std::vector<std::string>& arguments) {
    return test::error_message([&] { (void)choose(arguments); }, ErrorKind::usage);
  };
  EXPECT_EQ(message({"--top-p", "0"}), "--top-p: 0 is not above 0");
  EXPECT_EQ(message({"--repeat-penalty", "0"}), "--repeat-penalty: 0 is not above 0");
  EXPECT_EQ(message({"--stop", "END", "--stop", ""}),
            "--stop \"\": an empty text would end every text");
  EXPECT_EQ(message({"-l", "100+1"}),
            "--logit-bias 100+1: token 100 is outside the model's vocabulary of 100");
  for (const char* bias : {"", "7", "7+", "+1", "7+x", "7+1x", "7+-1", "7*2", "x+1", "7-nan"}) {
    EXPECT_NE(message({"--logit-bias", bias}), "") << bias;
  }
}

}  // namespace
}  // namespace moesaic
