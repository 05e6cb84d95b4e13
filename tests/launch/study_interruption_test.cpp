// moesaic study that is to end early: by its stop file, and because its time is over.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/program.h"
#include "tests/launch/study_program.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

constexpr int kInterrupted = 6;

/// A study of two points. The second one does not end by itself until released.
class StudyInterruption : public StudyProgram {
 protected:
  StudyInterruption() {
    describe(launcher("[ $ranks = 1 ] || [ -e " + released_ + " ] || { : >" + started_ +
                      "; exec sleep 1000; }\n" + kStartRanks) +
             "ranks = 1,2\n");
  }

  /// The driver, when its second point is under way.
  void expect_second_point(RunningProgram& program) const {
    EXPECT_TRUE(program.wait_until([&] { return fs::exists(started_); })) << program.err();
  }
  /// The driver, told by its stop file while its second point is under way.
  void expect_stop() const {
    RunningProgram program(moesaic_command(run()));
    expect_second_point(program);
    write_text(stop_, "");
    expect_end(program.wait(), stop_ + " is there", 1);
  }
  /// The driver has ended for this reason, with `count` finished points, and left nothing else.
  void expect_end(const ProgramResult& result, const std::string& reason, int count) const {
    EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
    EXPECT_EQ(result.error_lines(), 0) << result.err;
    EXPECT_NE(result.err.find("interrupted (" + reason + "): the same command goes on"),
              std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find(std::to_string(count) + " of 2 points\n"), std::string::npos)
        << result.err;
    EXPECT_EQ(std::ssize(points()), count);
    EXPECT_EQ(std::ssize(rows()), count);
  }
  /// The same command measures what is missing, and only that.
  void expect_rest() const {
    const std::map<std::string, std::string> before = points();
    write_text(released_, "");
    const ProgramResult result = run_moesaic(run({"--max-time", "2d"}));
    ASSERT_EQ(result.exit_code, 0) << result.text();
    std::map<std::string, std::string> after = points();
    EXPECT_EQ(after.size(), 2U);
    for (const auto& [name, text] : before) EXPECT_EQ(after[name], text);
    for (const Json& row : rows()) EXPECT_EQ(row.at("status").as_string(), "measured");
    EXPECT_EQ(num_files(out_ + "/points"), 2);
  }

  const std::string started_ = directory_.path_of("started");
  const std::string released_ = directory_.path_of("released");
  const std::string stop_ = out_ + "/stop";
};

// More sequences than any machine has memory or time for: they are made as ranks become free.
TEST(StudyPoint, EndsWithinARepetitionWhoseTimeIsOver) {
  const ProgramResult result =
      run_ranks(2, {"study", "point", "-m", kDemo, "-t", "1", "--no-roofs", "-p", "512",
                    "--sequences", "100000000", "--max-time", "1"});
  EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
}

TEST_F(StudyInterruption, TheStopFileEndsThePointThatIsUnderWay) {
  expect_stop();
  EXPECT_FALSE(fs::exists(stop_)) << "it would stop the next run too";
  expect_rest();
}

TEST_F(StudyInterruption, EndsWhatALauncherThatIsAScriptHasStarted) {
  const std::string ended = directory_.path_of("ended");
  describe(launcher("[ $ranks = 1 ] || [ -e " + released_ + " ] || { (trap 'sleep 0.3; : >" +
                    ended + "; exit' TERM; : >" + started_ +
                    "; while :; do sleep 0.1; done) & wait; }\n" + kStartRanks) +
           "ranks = 1,2\n");
  expect_stop();
  EXPECT_TRUE(fs::exists(ended)) << "nobody has waited for it";
  expect_rest();
}

TEST_F(StudyInterruption, AStopFileThatIsThereBeforeStopsOneRun) {
  fs::create_directory(out_);
  write_text(stop_, "");
  expect_end(run_moesaic(run()), stop_ + " is there", 0);
  EXPECT_FALSE(fs::exists(stop_));
  expect_rest();
}

TEST_F(StudyInterruption, ATimeThatIsOverEndsThePointThatIsUnderWay) {
  expect_end(run_moesaic(run({"--max-time", "0s"})), "the time is over", 0);
  // The second point alone, so that the time does not decide how many points there are.
  expect_end(run_moesaic(run({"--max-time", "2s", "--point", "2"})), "the time is over", 0);
  expect_rest();
}

}  // namespace
}  // namespace moesaic::test
