#include "launch/options/option_table.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "kernels/cpu_features.h"
#include "launch/options/option_help.h"
#include "launch/shapes/job_options.h"
#include "tests/launch/parsed_command.h"

namespace moesaic {
namespace {

TEST(OptionTable, ChoicesOfFormatsAreAllThereAre) {
  const OptionRow& row = *find_option("expert-format", Verb::generate);
  // f32 is what --precision fp32 is for; int4_group has three groups, fp8_block two sizes.
  EXPECT_EQ(choices(row).size(), std::size_t{1 + kNumFormats - 1 + 2 + 1});
  EXPECT_TRUE(choices(*find_option("predict", Verb::generate)).empty());
}

TEST(OptionTable, NamesAndLettersAreUniqueInEachVerb) {
  for (const OptionRow& row : option_table()) {
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_NE(row.verbs, 0U) << row.name;
    if (const auto* choice = std::get_if<ChoiceField>(&row.field)) {
      Options options;
      EXPECT_EQ(std::ranges::count(choice->names, choice->get(options)), 1) << row.name;
      for (const std::string_view name : choice->names) {
        EXPECT_TRUE(choice->set(options, name)) << row.name << " " << name;
        EXPECT_EQ(choice->get(options), name) << row.name;
      }
      EXPECT_FALSE(choice->set(options, "f32")) << row.name;
    }
  }
  for (const VerbRow& verb : verb_table()) {
    std::set<std::string_view> names;
    std::set<char> letters;
    for (const OptionRow& row : option_table()) {
      if (!takes(verb.verb, row)) continue;
      EXPECT_TRUE(names.insert(row.name).second) << verb.name << " --" << row.name;
      if (row.letter == '\0') continue;
      EXPECT_TRUE(letters.insert(row.letter).second) << verb.name << " -" << row.letter;
    }
  }
}

TEST(OptionTable, HelpOfAVerbListsItsOptionsAndNoOthers) {
  for (const VerbRow& verb : verb_table()) {
    const std::string help = verb_help(verb.verb);
    for (const OptionRow& row : option_table()) {
      const bool listed = help.find(fmt::format("--{} ", row.name)) != std::string::npos ||
                          help.find(fmt::format("--{}\n", row.name)) != std::string::npos;
      EXPECT_EQ(listed, takes(verb.verb, *find_option(row.name, verb.verb)))
          << verb.name << " " << row.name;
    }
  }
  EXPECT_NE(verb_help(Verb::generate).find("(default: 128)"), std::string::npos);
  for (const Verb verb : {Verb::bench_kernels, Verb::bench_layer, Verb::bench_exchange}) {
    EXPECT_EQ(verb_help(verb).find("--measure"), std::string::npos) << verb_row(verb).name;
  }
}

TEST(OptionTable, OverallHelpHasALineForEachVerb) {
  const std::string help = overall_help();
  for (const VerbRow& verb : verb_table()) {
    const std::string usage =
        fmt::format("\n  {}{}{} ", verb.name, verb.arguments.empty() ? "" : " ", verb.arguments);
    EXPECT_NE(help.find(usage), std::string::npos) << usage << help;
  }
}

TEST(OptionTable, HelpOfAGroupListsItsVerbs) {
  const std::string help = group_help("study");
  for (const VerbRow& verb : verb_table()) {
    const bool listed = help.find(fmt::format("\n  {} ", verb.name)) != std::string::npos;
    EXPECT_EQ(listed, verb.name.starts_with("study ")) << verb.name;
  }
  EXPECT_NE(group_help("study export").find("study export smpi"), std::string::npos);
  EXPECT_EQ(group_help("generate"), "");
  EXPECT_EQ(group_help("stud"), "");
  EXPECT_EQ(group_help(""), "");
}

TEST(OptionTable, HelpFitsIntoALine) {
  for (const VerbRow& verb : verb_table()) {
    const std::string help = verb_help(verb.verb);
    for (std::size_t at = 0; at < help.size();) {
      const std::size_t end = help.find('\n', at);
      EXPECT_LE(end - at, 100U) << help.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(OptionTable, ConfigIsJson) {
  const Json json = Json::parse(config_json(test::parse({"generate", "-p", "a \"b\""})), "config");
  EXPECT_EQ(json.at("prompt").as_string(), "a \"b\"");
  EXPECT_EQ(json.at("predict").as_int(), 128);
  EXPECT_FALSE(json.at("json").as_bool());
  EXPECT_FALSE(json.contains("file"));
}

TEST(OptionTable, OptionsOfSomeJobsOfStudiesAreOptions) {
  for (const std::string_view name : options_of_some_jobs()) {
    const OptionRow* const row = find_option(name, Verb::study_point);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_TRUE(takes(Verb::study_point, *row)) << name;
  }
}

TEST(OptionTable, EveryInstructionSetCanBeNamed) {
  for (int number = 0; number < kNumIsas; ++number) {
    const auto isa = static_cast<Isa>(number);
    const std::string name(isa_name(isa));
    EXPECT_EQ(test::parse({"bench", "kernels", "--isa", name}).options.isa.isa, isa);
    EXPECT_EQ(test::parse({"bench", "layer", "--isa", name}).options.isa.isa, isa);
  }
}

}  // namespace
}  // namespace moesaic
