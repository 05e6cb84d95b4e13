#include "src/generate/generation_defaults.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

GenerationDefaults parse(const std::string& text) {
  return parse_generation_defaults(Json::parse(text, "generation_config.json"));
}

TEST(GenerationDefaults, are_what_the_file_says) {
  const GenerationDefaults all =
      parse(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.05,
                "repetition_penalty": 1.05, "max_length": 20})");
  EXPECT_EQ(all.do_sample, true);
  EXPECT_EQ(all.temperature, 0.6);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.top_p, 0.9);
  EXPECT_EQ(all.min_p, 0.05);
  EXPECT_EQ(all.repetition_penalty, 1.05);
  const GenerationDefaults none = parse(R"({"temperature": null, "eos_token_id": 2})");
  EXPECT_FALSE(none.do_sample || none.temperature || none.top_k || none.top_p || none.min_p ||
               none.repetition_penalty);
}

TEST(GenerationDefaults, of_a_directory_without_the_file_are_none) {
  const test::TemporaryDirectory directory;
  EXPECT_FALSE(read_generation_defaults(directory.path_of("")).temperature.has_value());
  test::write_text(directory.path_of("generation_config.json"), R"({"temperature": 1})");
  EXPECT_EQ(read_generation_defaults(directory.path_of("")).temperature, 1.0);
}

TEST(GenerationDefaults, name_what_is_wrong) {
  const auto message = [](const std::string& text) {
    return test::error_message([&] { (void)parse(text); }, ErrorKind::file);
  };
  EXPECT_NE(message(R"({"temperature": "hot"})").find("generation_config.json: temperature"),
            std::string::npos);
  EXPECT_NE(message(R"({"do_sample": 1})").find("do_sample"), std::string::npos);
  const std::string range = message(R"({"top_p": 3})");
  EXPECT_TRUE(range.starts_with("generation_config.json: top-p")) << range;
}

}  // namespace
}  // namespace moesaic
