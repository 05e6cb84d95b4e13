// moesaic study: points whose values do not go together.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/study_program.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::test {
namespace {

class StudyImpossible : public StudyProgram {
 protected:
  /// Eight points, of which two have replicas that do not come out even, and the four of 17 ranks
  /// more ranks than experts.
  void describe_eight(const std::string& more = "") const {
    describe(
        "launcher = env STUDY_RANKS={ranks}\nranks = 1,17\nexpert-replicas = 1,2\n"
        "batch-size = 4,8\n" +
        more);
  }
};

TEST_F(StudyImpossible, AllAreNamedBeforeAnythingRuns) {
  describe_eight();
  for (const Arguments& verb : {run(), run({"--point", "1"}), {"study", "points", config_}}) {
    const ProgramResult result = run_moesaic(verb);
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.out, "");
    EXPECT_NE(
        result.err.find("[3/8] ranks 1, expert-replicas 2, batch-size 4: impossible: " + config_ +
                        " line 11: ranks = 1: --expert-replicas 2 does not divide the 1 rank"),
        std::string::npos)
        << result.err;
    for (const char* point : {"[4/8]", "[5/8]", "[6/8]", "[7/8]", "[8/8]"}) {
      EXPECT_NE(result.err.find(point), std::string::npos) << point << result.err;
    }
    for (const char* point : {"[1/8]", "[2/8]"}) {
      EXPECT_EQ(result.err.find(point), std::string::npos) << point << result.err;
    }
    EXPECT_NE(result.err.find("; 6 of 8 points are impossible; with a line impossible = skip"),
              std::string::npos)
        << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(StudyImpossible, OneAloneIsTheError) {
  describe("ranks = 1\ndefer = 2,5\nbatch-size = 4\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.err.starts_with("error: " + config_ + ": --defer 5:")) << result.err;
  EXPECT_NE(result.err.find("; 1 of 2 points is impossible; with a line impossible = skip"),
            std::string::npos)
      << result.err;
}

TEST_F(StudyImpossible, AreSkippedAndRecordedWhereTheFileSaysSo) {
  describe_eight("impossible = skip\n");
  const ProgramResult list = run_moesaic({"study", "points", config_, "--log-level", "debug"});
  EXPECT_EQ(list.out, "8\n") << list.text();
  EXPECT_NE(list.err.find("ranks 17, expert-replicas 1, batch-size 4 (skipped)\n"),
            std::string::npos)
      << list.err;
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("[5/8] ranks 17, expert-replicas 1, batch-size 4: skipped: " + config_ +
                            " line 11: ranks = 17: 17 ranks cannot share 16 experts"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find(": 8 of 8 points, 6 of them skipped\n"), std::string::npos)
      << result.err;
  ASSERT_EQ(rows().size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    const Json row = rows()[i];
    EXPECT_EQ(row.at("status").as_string(), i < 2 ? "measured" : "skipped") << i;
    EXPECT_EQ(row.contains("skipped"), i >= 2) << i;
    EXPECT_FALSE(row.contains("error")) << i;
  }
  EXPECT_NE(rows()[7].at("skipped").as_string().find("17 ranks"), std::string::npos);
  EXPECT_EQ(rows()[7].at("ranks").as_int(), 17);

  const auto before = points();
  const ProgramResult again = run_moesaic(run({"--retry"}));
  EXPECT_EQ(again.exit_code, 0) << again.text();
  EXPECT_EQ(points(), before);

  ASSERT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
  const std::string report = read_text(out_ + "/report.html");
  EXPECT_NE(report.find("<h2>Skipped points</h2>"), std::string::npos);
  EXPECT_NE(report.find("<li>8: "), std::string::npos);
  EXPECT_EQ(report.find("Failed points"), std::string::npos);
  EXPECT_NE(read_text(out_ + "/points.csv").find("skipped"), std::string::npos);
}

TEST_F(StudyImpossible, OfAModelAreFoundInEachPoint) {
  describe(
      "launcher = env STUDY_RANKS={ranks}\nranks = 1\nsequences = 1,2\n"
      "lora-targets = attention,no_such\nimpossible = skip\n",
      "sft");
  const ProgramResult result = run_moesaic({"study", "points", config_});
  EXPECT_EQ(result.out, "4\n") << result.text();
  for (const char* point : {"[2/4] sequences 1, lora-targets no_such: skipped: ",
                            "[4/4] sequences 2, lora-targets no_such: skipped: "}) {
    EXPECT_NE(result.err.find(point), std::string::npos) << point << result.err;
  }
}

TEST_F(StudyImpossible, AreAdaptersOfAnotherModel) {
  describe("ranks = 1\nsequences = 1,2\nimpossible = skip\nlora = " + kData +
           "/adapters/qwen3_moe\n");
  expect_failure(run_moesaic({"study", "points", config_}), 2,
                 {"[2/2] sequences 2: impossible: ", "; 2 of 2 points are impossible"});
}

TEST_F(StudyImpossible, ATransportOfGpusIsNoValueOfPoints) {
  describe("ranks = 1\nimpossible = skip\ntransport = auto,nccl\n");
  expect_failure(
      run_moesaic({"study", "points", config_}), 2,
      {config_ + " line 12: --transport nccl is for experts on GPUs, which study point does not"});
}

TEST_F(StudyImpossible, AreWaysToReadWeightsThatTheModelHasNot) {
  describe("ranks = 1\nmmap = false,true\n");
  expect_failure(run_moesaic({"study", "points", config_}), 2,
                 {"no packed ones to map", "; 1 of 2 points is impossible"});
  const std::string packed = directory_.path_of("packed");
  ASSERT_EQ(
      run_moesaic({"convert", "-m", kDemo, "-o", packed, "--expert-format", "int8"}).exit_code, 0);
  describe("ranks = 1\nmmap = false,true\nexpert-format = int8,bf16\n");
  write_text(config_, replaced(read_text(config_), kDemo, packed));
  const ProgramResult result = run_moesaic({"study", "points", config_});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* point : {"[2/4] mmap false, expert-format bf16: impossible: ",
                            "[4/4] mmap true, expert-format bf16: impossible: "}) {
    EXPECT_NE(result.err.find(point), std::string::npos) << result.err;
  }
  EXPECT_NE(result.err.find("2 of 4 points are impossible"), std::string::npos) << result.err;
}

TEST_F(StudyImpossible, AStudyOfNothingElseIsRefused) {
  describe("ranks = 17,18\nimpossible = skip\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 2) << result.text();
  EXPECT_NE(result.err.find("; 2 of 2 points are impossible\n"), std::string::npos) << result.err;
  describe("ranks = 1\nimpossible = leave\n");
  expect_failure(run_moesaic(run()), 2,
                 {"line 11: impossible: \"leave\" is not one of refuse, skip"});
}

}  // namespace
}  // namespace moesaic::test
