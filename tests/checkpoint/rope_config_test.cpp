#include "src/checkpoint/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

constexpr RopeContext kContext = {5000.0, 8, 64};  // default theta, head_dim, max positions

RopeConfig read(const std::string& config) {
  return read_rope_config(Json::parse(config, "c"), kContext);
}

std::string read_error(const std::string& config) {
  return test::error_message([&] { (void)read(config); });
}

/// The same scaling in the form of transformers 4 and of transformers 5.
std::string v4(const std::string& scaling, const std::string& beside = "") {
  return R"({"rope_theta": 10000.0, "rope_scaling": {)" + scaling + "}" + beside + "}";
}
std::string v5(const std::string& parameters, const std::string& beside = "") {
  return R"({"rope_parameters": {"rope_theta": 10000.0, )" + parameters + "}" + beside + "}";
}

TEST(RopeConfig, is_plain_without_scaling) {
  for (const std::string config :
       {R"({"rope_theta": 3e4})", R"({"rope_theta": 3e4, "rope_scaling": null})",
        R"({"rope_theta": 3e4, "rope_scaling": {"type": "default"}})",
        R"({"rope_parameters": {"rope_theta": 3e4}})",
        R"({"rope_parameters": {"rope_type": "default"}, "rope_theta": 3e4})"}) {
    const RopeConfig rope = read(config);
    EXPECT_EQ(rope.type, RopeType::plain) << config;
    EXPECT_DOUBLE_EQ(rope.theta, 3e4) << config;
    EXPECT_EQ(rope.rotary_dim, 8) << config;
    EXPECT_DOUBLE_EQ(rope.attention_factor, 1.0);
  }
  EXPECT_DOUBLE_EQ(read("{}").theta, 5000.0);
  EXPECT_EQ(rope_type_name(RopeType::plain), "default");
  EXPECT_EQ(rope_type_name(RopeType::longrope), "longrope");
}

TEST(RopeConfig, a_family_may_scale_where_the_config_says_nothing) {
  RopeContext context = kContext;
  context.default_scaling = R"({"rope_type": "linear", "factor": 3})";
  const auto type = [&](const std::string& config) {
    return read_rope_config(Json::parse(config, "c"), context).type;
  };
  EXPECT_EQ(type("{}"), RopeType::linear);
  EXPECT_DOUBLE_EQ(read_rope_config(Json::parse("{}", "c"), context).factor, 3);
  EXPECT_EQ(type(v4(R"("type": "default")")), RopeType::plain);
  EXPECT_EQ(type(R"({"rope_parameters": {"rope_theta": 3e4}})"), RopeType::plain);
}

TEST(RopeConfig, reads_linear_and_dynamic) {
  for (const std::string& config :
       {v4(R"("type": "linear", "factor": 4)"), v5(R"("rope_type": "linear", "factor": 4.0)")}) {
    EXPECT_EQ(read(config).type, RopeType::linear);
    EXPECT_DOUBLE_EQ(read(config).factor, 4.0);
  }
  // Dynamic scaling starts at max_position_embeddings, whatever the original length says.
  const RopeConfig dynamic =
      read(v4(R"("rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(dynamic.type, RopeType::dynamic);
  EXPECT_EQ(dynamic.original_max_position, 64);
}

TEST(RopeConfig, what_versions_of_transformers_take_differently_is_refused) {
  const auto says = [](const std::string& config, const std::string& part) {
    EXPECT_NE(read_error(config).find(part), std::string::npos) << read_error(config);
  };
  const std::string both = R"({"rope_parameters": {"rope_type": "default"}, "rope_scaling": )";
  says(both + R"({"type": "linear", "factor": 2}})", "rope_scaling and rope_parameters");
  EXPECT_EQ(read(both + "null}").type, RopeType::plain);
  EXPECT_EQ(read(both + "{}}").type, RopeType::plain);
  says(v5(R"("full_attention": {"rope_type": "default"})"), "full_attention");
  says(v4(R"("type": "linear", "rope_type": "default", "factor": 2)"), "\"linear\" beside");
  EXPECT_EQ(read(v4(R"("type": "linear", "rope_type": "linear", "factor": 2)")).type,
            RopeType::linear);
  EXPECT_FALSE(read(v4(R"("type": "yarn", "factor": 2, "truncate": null)")).truncate);
}

TEST(RopeConfig, reads_a_partial_rotation) {
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.5})").rotary_dim, 4);
  EXPECT_EQ(read(v5(R"("partial_rotary_factor": 0.25)")).rotary_dim, 2);
}

TEST(RopeConfig, resolves_the_defaults_of_yarn) {
  const RopeConfig rope = read(v4(R"("rope_type": "yarn", "factor": 4.0)"));
  EXPECT_EQ(rope.type, RopeType::yarn);
  EXPECT_EQ(rope.original_max_position, 64);
  EXPECT_DOUBLE_EQ(rope.beta_fast, 32.0);
  EXPECT_DOUBLE_EQ(rope.beta_slow, 1.0);
  EXPECT_TRUE(rope.truncate);
  EXPECT_DOUBLE_EQ(rope.attention_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_DOUBLE_EQ(read(v4(R"("rope_type": "yarn", "factor": 0.5)")).attention_factor, 1.0);
}

TEST(RopeConfig, reads_all_of_yarn) {
  const RopeConfig rope = read(
      v5(R"("rope_type": "yarn", "factor": 8, "beta_fast": 16, "beta_slow": 2, "truncate": false,)"
         R"("mscale": 1.0, "mscale_all_dim": 0.4, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(rope.original_max_position, 16);
  EXPECT_DOUBLE_EQ(rope.beta_fast, 16.0);
  EXPECT_DOUBLE_EQ(rope.beta_slow, 2.0);
  EXPECT_FALSE(rope.truncate);
  const double log_factor = std::log(8.0);
  EXPECT_DOUBLE_EQ(rope.attention_factor, (0.1 * log_factor + 1) / (0.04 * log_factor + 1));
  // One mscale alone counts as none; an explicit factor wins.
  EXPECT_DOUBLE_EQ(read(v4(R"("type": "yarn", "factor": 8, "mscale": 0.7, "mscale_all_dim": 0)"))
                       .attention_factor,
                   0.1 * log_factor + 1);
  EXPECT_DOUBLE_EQ(
      read(v4(R"("type": "yarn", "factor": 8, "attention_factor": 1.25)")).attention_factor, 1.25);
}

TEST(RopeConfig, latent_attention_is_scaled_where_both_fields_ask_for_it) {
  const double expected = 0.1 * 0.7 * std::log(8.0) + 1;
  const std::string all = R"("factor": 8, "mscale_all_dim": 0.7)";
  EXPECT_DOUBLE_EQ(attention_mscale(read(v4(R"("type": "yarn", )" + all))), expected);
  EXPECT_DOUBLE_EQ(attention_mscale(read(v5(R"("rope_type": "linear", )" + all))), expected);
  EXPECT_EQ(attention_mscale(read(v5(R"("rope_type": "default", )" + all))), 1);
  EXPECT_EQ(attention_mscale(read(v4(R"("type": "yarn", "factor": 8, "mscale_all_dim": 0)"))), 1);
  EXPECT_EQ(attention_mscale(read(v4(R"("type": "yarn", "factor": 8)"))), 1);
  EXPECT_EQ(attention_mscale(read(v4(R"("type": "yarn", "factor": 0.5, "mscale_all_dim": 0.7)"))),
            1);
}

TEST(RopeConfig, yarn_without_a_factor_takes_the_ratio_of_lengths_in_form_5_only) {
  const std::string yarn = R"("rope_type": "yarn", "original_max_position_embeddings": 16)";
  EXPECT_DOUBLE_EQ(read(v5(yarn)).factor, 4.0);
  EXPECT_EQ(read_error(v4(yarn)), "c: rope_scaling: field \"factor\" is missing");
  EXPECT_EQ(read(v5(yarn, R"(, "original_max_position_embeddings": 32)")).original_max_position,
            32);
}

TEST(RopeConfig, reads_llama3) {
  const std::string llama =
      R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,)"
      R"("original_max_position_embeddings": 32)";
  for (const std::string& config : {v4(llama), v5(llama)}) {
    const RopeConfig rope = read(config);
    EXPECT_EQ(rope.type, RopeType::llama3);
    EXPECT_DOUBLE_EQ(rope.factor, 8.0);
    EXPECT_DOUBLE_EQ(rope.low_freq_factor, 1.0);
    EXPECT_DOUBLE_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_position, 32);
  }
}

const std::string kFactors =
    R"("rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4])";

TEST(RopeConfig, longrope_in_form_4_takes_the_original_length_from_beside) {
  const RopeConfig rope =
      read(v4(kFactors + R"(, "factor": 3.0)", R"(, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(rope.original_max_position, 16);
  EXPECT_DOUBLE_EQ(rope.factor, 4.0);  // 64 / 16 overrules 3
  EXPECT_DOUBLE_EQ(rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(16.0)));
  EXPECT_EQ(rope.long_factor, (std::vector<double>{1, 2, 3, 4}));
  const RopeConfig inside =
      read(v4(kFactors + R"(, "factor": 3.0, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(inside.original_max_position, 64);
  EXPECT_DOUBLE_EQ(inside.factor, 3.0);
}

TEST(RopeConfig, longrope_in_form_5_takes_it_from_its_parameters) {
  const std::string original = R"(, "original_max_position_embeddings": 16)";
  const RopeConfig rope = read(v5(kFactors + original + R"(, "factor": 3.0)"));
  EXPECT_EQ(rope.original_max_position, 16);
  EXPECT_DOUBLE_EQ(rope.factor, 3.0);
  EXPECT_DOUBLE_EQ(read(v5(kFactors + original)).factor, 4.0);
  EXPECT_DOUBLE_EQ(read(v5(kFactors + R"(, "attention_factor": 1.5)")).attention_factor, 1.5);
}

TEST(RopeConfig, names_what_does_not_fit) {
  EXPECT_EQ(read_error(v4(R"("type": "mrope")")),
            "c: rope_scaling.type: rope type \"mrope\" is not supported; these are: default, "
            "linear, dynamic, yarn, llama3, longrope");
  EXPECT_EQ(read_error(v4(R"("factor": 2)")), "c: rope_scaling: field \"rope_type\" is missing");
  EXPECT_EQ(read_error(v4(R"("type": "linear")")), "c: rope_scaling: field \"factor\" is missing");
  EXPECT_EQ(read_error(v4(R"("type": "linear", "factor": -2)")),
            "c: rope_scaling.factor: expected a number above 0, found -2");
  EXPECT_EQ(read_error(R"({"rope_theta": 1})"),
            "c: rope_theta: expected a number above 1, found 1");
  EXPECT_EQ(read_error(R"({"rope_theta": "10000"})"),
            "c: rope_theta: expected a number, found string \"10000\"");
  EXPECT_EQ(read_error(R"({"partial_rotary_factor": 1.5})"),
            "c: partial_rotary_factor: expected at most 1, found 1.5");
  EXPECT_EQ(
      read_error(R"({"partial_rotary_factor": 0.4})"),
      "c: by partial_rotary_factor 3 of the 8 dimensions of a head are rotated; an even number "
      "above 0 is needed");
  EXPECT_EQ(read_error(v4(R"("type": "llama3", "factor": 8, "low_freq_factor": 4,)"
                          R"("high_freq_factor": 4, "original_max_position_embeddings": 8)")),
            "c: rope_scaling: low_freq_factor 4 is not below high_freq_factor 4");
  EXPECT_EQ(read_error(v5(R"("rope_type": "longrope", "short_factor": [1, 1, 1], "factor": 2)")),
            "c: rope_parameters.short_factor: expected an array of 4 numbers, found 3 elements");
  EXPECT_EQ(read_error(v4(kFactors)),
            "c: rope_scaling: longrope needs \"factor\", \"attention_factor\" or the model's "
            "\"original_max_position_embeddings\"");
  EXPECT_EQ(read_error(v5(kFactors + R"(, "factor": 2, "original_max_position_embeddings": 1)")),
            "c: rope_parameters: longrope of factor 2 needs an original context of more than 1 "
            "token, or an \"attention_factor\"");
  EXPECT_EQ(read_error(R"({"rope_scaling": "yarn"})"),
            "c: rope_scaling: expected an object, found string \"yarn\"");
}

}  // namespace
}  // namespace moesaic
