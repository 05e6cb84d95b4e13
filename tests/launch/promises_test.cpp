// What README promises of options, seen from outside: each does what it says.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(Promises, EachRankReadsOnlyItsOwnExperts) {
  const auto bytes = [](int ranks, const Arguments& more) {
    const ProgramResult result = run_ranks(ranks, joined(generate_with({"--json"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const Json statistics = Json::parse(lines_of(result.out).back(), "last line").at("statistics");
    return std::pair(statistics.at("load_bytes").as_int(),
                     statistics.at("expert_bytes").at("bf16").as_int());
  };
  const auto [alone, experts] = bytes(1, {});
  EXPECT_GT(alone, experts);
  EXPECT_EQ(bytes(2, {}).first, alone);
  EXPECT_EQ(bytes(4, {}).first, alone);
  EXPECT_EQ(bytes(4, {"--expert-replicas", "2"}).first, alone + experts);
}

/// The file of logits of a short text.
std::string logits(const Arguments& more) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text.txt");
  const std::string file = directory.path_of("logits");
  write_text(text, "And God said, Let there be light: and there was light.");
  const ProgramResult result =
      run_moesaic(joined({"score", "-m", kDemo, "-f", text, "--logits-out", file}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return result.exit_code == 0 ? read_text(file) : "";
}

TEST(Promises, EveryFormatAndPrecisionReachesTheModel) {
  const std::vector<Arguments> all = {
      {},
      {"--precision", "fp32"},
      {"--expert-format", "nvfp4"},
      {"--expert-format", "nvfp4", "--nvfp4-activations", "nvfp4"},
      {"--dense-format", "int8"},
      {"--head-format", "int8"},
      {"--expert-format", "int4_group128"},
      {"--expert-format", "int4_group128", "--int4-activations", "int8"}};
  std::set<std::string> different;
  for (const Arguments& arguments : all) {
    const std::string file = logits(arguments);
    EXPECT_TRUE(different.insert(file).second) << testing::PrintToString(arguments);
    EXPECT_TRUE(logits(joined({"-b", "3", "-t", "2"}, arguments)) == file)
        << testing::PrintToString(arguments);
  }
}

TEST(Promises, EqualSeedsGiveEqualTexts) {
  const auto text = [](const Arguments& more) {
    const ProgramResult result = run_moesaic(joined(generate_with({"-n", "24"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.out;
  };
  const std::string one = text({"--seed", "1"});
  EXPECT_EQ(text({"--seed", "1", "-t", "2", "-b", "2"}), one);
  EXPECT_NE(text({"--seed", "2"}), one);
  EXPECT_NE(text({"--seed", "1", "--temp", "0"}), one);
  EXPECT_EQ(text({"--seed", "2", "--top-k", "1"}), text({"--temp", "0"}));
  EXPECT_EQ(text({"--seed", "2", "--top-p", "0.000001"}), text({"--temp", "0"}));
}

TEST(Promises, SpecialTokensCanBeLeftOut) {
  const auto lines = [](const Arguments& more) {
    const ProgramResult result =
        run_moesaic(joined({"tokenize", "-m", kData + "/tokenizers/llama3", "-p", "In the"}, more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return lines_of(result.out);
  };
  const std::vector<std::string> all = lines({});
  const std::vector<std::string> plain = lines({"--no-special"});
  ASSERT_EQ(all.size(), plain.size() + 1);
  EXPECT_NE(all[0].find("<|begin_of_text|>"), std::string::npos) << all[0];
}

TEST(Promises, ExpertsArePlacedByTheLoadOfAnEarlierRun) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text.txt");
  const std::string load = directory.path_of("load.json");
  write_text(text, "And God said, Let there be light: and there was light.");
  const auto scores = [&](int ranks, const Arguments& more) {
    const std::string file = directory.path_of("logprobs");
    std::filesystem::remove(file);  // else it would be gone on with
    const ProgramResult result =
        run_ranks(ranks, joined({"score", "-m", kDemo, "-f", text, "--json", "--numerics",
                                 "portable", "--logprobs-out", file},
                                more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const Json statistics = Json::parse(lines_of(result.out).back(), "last line").at("statistics");
    return std::tuple(read_text(file), statistics.at("layer_imbalance").as_double(),
                      statistics.at("layer_imbalance_contiguous").as_double());
  };
  const auto [bytes, alone, alone_contiguous] = scores(1, {"--record-load", load});
  EXPECT_EQ(alone, 1);
  const auto [same, placed, contiguous] = scores(3, {"--placement", load});
  EXPECT_TRUE(same == bytes);
  EXPECT_LT(placed, contiguous);
  const auto [dealt, round_robin, before] =
      scores(4, {"--placement", "round_robin", "--expert-replicas", "2"});
  EXPECT_TRUE(dealt == bytes);
  EXPECT_NE(round_robin, before);
  const std::string recorded = read_text(load);
  write_text(load, replaced(recorded, "[\n  [", "[\n  [1, "));
  expect_failure(run_ranks(2, generate_with({"--placement", load})), 3,
                 {load, "layer 0 has rows of expert 16, but the model has 16 experts"});
  expect_failure(run_ranks(2, generate_with({"--placement", directory.path_of("none")})), 3,
                 {directory.path_of("none")});
}

TEST(Promises, RowsCanTravelWithChecksumsAndLeaveNoTraceOfAJobThatIsDone) {
  const TemporaryDirectory directory;
  const std::string trace = directory.path_of("trace");
  const auto run = [&](const Arguments& more) {
    const ProgramResult result = run_ranks(
        2, joined(generate_with({"--json", "--ranks-per-node", "1", "--seed", "1"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const std::vector<std::string> lines = lines_of(result.out);
    const Json statistics = Json::parse(lines.back(), "last line").at("statistics");
    return std::tuple(lines.front(), statistics.at("bytes_far").as_int(),
                      statistics.at("messages").as_int());
  };
  const auto [text, bytes, messages] = run({});
  const auto [same, more_bytes, as_many] = run({"--check-rows", "1", "--trace-dir", trace});
  EXPECT_EQ(same, text);
  EXPECT_EQ(as_many, messages);
  EXPECT_EQ(more_bytes, bytes + 8 * messages);
  EXPECT_EQ(num_files(trace), 0);
}

TEST(Promises, TransportAndInstructionSetAreTold) {
  const auto statistics = [](const Arguments& more) {
    const ProgramResult result = run_ranks(2, joined(generate_with({"--json"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return Json::parse(lines_of(result.out).back(), "last line").at("statistics");
  };
  const Json memory = statistics({"--isa", "scalar"});
  const Json mpi = statistics({"--isa", "scalar", "--transport", "mpi"});
  EXPECT_EQ(memory.at("isa").as_string(), "scalar");
  EXPECT_NE(memory.at("transport").as_string(), mpi.at("transport").as_string());
  EXPECT_GT(memory.at("bytes_near").as_int(), 0);
  EXPECT_EQ(memory.at("messages").as_int(), 0);
  EXPECT_EQ(mpi.at("bytes_near").as_int(), 0);
  EXPECT_GT(mpi.at("bytes_far").as_int(), mpi.at("bytes_sent").as_int());  // heads of messages
  EXPECT_GT(mpi.at("messages").as_int(), 0);
}

}  // namespace
}  // namespace moesaic::test
