// moesaic convert and --expert-format as a user meets them.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

/// A text and the files of its logits.
class Scores {
 public:
  Scores() { write_text(text_, read_text(kData + "/demo-heldout.txt").substr(0, 500)); }

  /// The file of logits that `moesaic score` writes.
  [[nodiscard]] std::string score(int ranks, const std::string& model,
                                  const Arguments& more) const {
    const std::string file = directory_.path_of("logits");
    Arguments arguments = {"score", "-m", model, "-f", text_, "--logits-out", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_ranks(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.exit_code == 0 ? read_text(file) : "";
  }

 private:
  TemporaryDirectory directory_;
  std::string text_ = directory_.path_of("text.txt");
};

class ConvertFormat : public testing::TestWithParam<std::string> {};

TEST_P(ConvertFormat, GivesTheSameBytesAndLogitsOnAnyNumberOfRanks) {
  const TemporaryDirectory directory;
  const Scores scores;
  const Arguments format = {"--expert-format", GetParam(),      "--dense-format",
                            GetParam(),        "--head-format", "int8"};
  const std::string expected = scores.score(1, kDemo, format);
  EXPECT_TRUE(scores.score(3, kDemo, format) == expected);

  std::map<std::string, std::string> first;
  for (const int ranks : {1, 4}) {
    const std::string out = directory.path_of(std::to_string(ranks));
    const ProgramResult result = run_ranks(ranks, convert_to(out, format));
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const std::map<std::string, std::string> files = contents(out);
    if (ranks == 1) first = files;
    EXPECT_TRUE(files == first) << ranks << " ranks";
    EXPECT_TRUE(scores.score(5 - ranks, out, {}) == expected) << 5 - ranks << " ranks";
  }
  EXPECT_TRUE(scores.score(2, directory.path_of("1"), {"--mmap", "--verify"}) == expected);
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertFormat,
                         testing::Values("auto", "bf16", "int8", "int4", "int4_group",
                                         "int4_group64", "int4_group128", "fp8_block",
                                         "fp8_block32", "fp8_channel", "nvfp4", "mxfp4", "mxfp8"),
                         [](const auto& param) { return param.param; });

TEST(Convert, OneDirectoryServesEveryLaunch) {
  const TemporaryDirectory directory;
  const Scores scores;
  const Arguments format = {"--expert-format", "int4_group"};
  const std::string expected = scores.score(1, kDemo, format);
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_ranks(3, convert_to(out, format)).exit_code, 0);
  const std::string two = directory.path_of("two");
  ASSERT_EQ(run_ranks(2, convert_to(two, {format[0], "RAWINT4", "-t", "2"})).exit_code, 0);
  EXPECT_TRUE(contents(out) == contents(two));
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_TRUE(scores.score(ranks, out, {"-t", "1"}) == expected) << ranks << " ranks";
    EXPECT_TRUE(scores.score(ranks, out, {"--mmap"}) == expected) << ranks << " ranks";
  }
  EXPECT_TRUE(scores.score(4, out, {"--verify", "--expert-replicas", "2"}) == expected);
  EXPECT_TRUE(scores.score(4, out, {"--ranks-per-node", "2"}) == expected);
  EXPECT_TRUE(scores.score(2, out, {"--transport", "mpi", format[0], format[1]}) == expected);
}

TEST(Convert, DirectoryServesEveryVerb) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const ProgramResult result = run_moesaic(
      convert_to(out, {"--expert-format", "AMXINT8", "--head-format", "fp8", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json converted = Json::parse(result.out, "convert");
  EXPECT_EQ(converted.at("expert_format").as_string(), "int8");
  EXPECT_EQ(converted.at("dense_format").as_string(), "auto");
  EXPECT_EQ(converted.at("head_format").as_string(), "fp8_block");
  EXPECT_EQ(converted.at("shards").as_int(), 1);
  EXPECT_GT(converted.at("bytes").as_int(), 1 << 20);

  const Arguments prompt = {"-p", "In the beginning", "-n", "8", "--json", "-s", "3"};
  const auto generate = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), "generate");
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    const ProgramResult run = run_ranks(2, arguments);
    EXPECT_EQ(run.exit_code, 0) << run.text();
    return run.out.substr(0, run.out.find('\n'));
  };
  EXPECT_EQ(generate({"-m", out}),
            generate({"-m", kDemo, "--expert-format", "int8", "--head-format", "fp8_block"}));

  const ProgramResult inspect = run_moesaic({"inspect", out, "--json", "--verify"});
  ASSERT_EQ(inspect.exit_code, 0) << inspect.text();
  const Json json = Json::parse(inspect.out, "inspect");
  EXPECT_TRUE(json.at("converted").as_bool());
  EXPECT_GT(json.at("packed_expert_bytes").at("int8").as_int(), 1 << 20);
  EXPECT_EQ(json.at("packed_expert_bytes").size(), 1);
  EXPECT_EQ(run_moesaic({"inspect", out}).exit_code, 0);
  EXPECT_EQ(run_moesaic({"tokenize", "-m", out, "-p", "And"}).exit_code, 0);
  const ProgramResult bench =
      run_ranks(2, {"bench", "model", "-m", out, "-p", "8", "-n", "2", "-r", "1", "-o", "json"});
  EXPECT_EQ(bench.exit_code, 0) << bench.text();
}

TEST(Convert, FormatsAreToldWithTheirBytes) {
  const ProgramResult text = run_moesaic({"inspect", kDemo});
  EXPECT_NE(text.out.find("5.62 MiB bf16"), std::string::npos) << text.text();
  const ProgramResult run =
      run_ranks(2, {"generate", "-m", kDemo, "-p", "In", "-n", "1", "--expert-format", "int8"});
  ASSERT_EQ(run.exit_code, 0) << run.text();
  EXPECT_NE(run.err.find("MiB int8"), std::string::npos) << run.text();
  const ProgramResult small =
      run_moesaic({"generate", "-m", kDemo, "-p", "In", "--memory-limit", "1M"});
  expect_failure(small, 4, {"experts 5.62 MiB in bf16", "--expert-format"});
}

}  // namespace
}  // namespace moesaic::test
