// moesaic study: what is said of points, files and programs that fail.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/launch/study_program.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

ino_t file_number(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

class StudyFailures : public StudyProgram {
 protected:
  /// A report of a program for pictures that is missing, that fails, and that may not be run.
  void expect_pictures() const {
    const std::string program = directory_.path_of("rsvg-convert");
    const auto told = [&] {
      const ProgramResult result =
          run_moesaic({"study", "report", config_}, {{"PATH", directory_.path()}});
      EXPECT_EQ(result.exit_code, 0) << result.text();
      for (const auto& entry : fs::directory_iterator(out_ + "/plots")) {
        EXPECT_EQ(entry.path().extension(), ".svg") << entry.path();
      }
      return result.err;
    };
    const auto expect_told = [&](const std::string& words) {
      const std::string err = told();
      EXPECT_NE(err.find(" plots, 0 of them as .png: " + words), std::string::npos) << err;
    };
    expect_told("cannot start rsvg-convert: it is not in PATH");
    write_text(program, "#!/bin/sh\necho half > $2\necho the disk is full >&2\nexit 3\n");
    fs::permissions(program, fs::perms::owner_all);
    expect_told("rsvg-convert ended with code 3: the disk is full");
    fs::permissions(program, fs::perms::owner_read);
    expect_told("cannot start rsvg-convert: Permission denied");
  }
};

TEST_F(StudyFailures, KeepsWhatAFailedPointSaidAndRunsItAgainWhenAsked) {
  describe(
      "launcher = env STUDY_RANKS={ranks}\nranks = 1\nsequences = 3\nranks-per-node = "
      "1\nmemory-limit = 8G,1M\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 4) << result.text();
  ASSERT_EQ(rows().size(), 2U);
  const Json failed = rows()[1];
  EXPECT_EQ(failed.at("status").as_string(), "failed");
  EXPECT_EQ(failed.at("error").at("exit_code").as_int(), 4);
  EXPECT_NE(failed.at("error").at("last_words").as_string().find("not enough memory"),
            std::string::npos);
  // What is known without a measurement.
  for (const char* key : {"ranks", "nodes", "threads", "replicas", "sequences"}) {
    EXPECT_EQ(failed.at(key).as_int(), rows()[0].at(key).as_int()) << key;
  }
  EXPECT_FALSE(failed.find("tokens"));
  for (const char* key : {"version", "commit", "compiler", "mpi"}) {
    EXPECT_EQ(failed.at("provenance").at(key).as_string(),
              rows()[0].at("provenance").at(key).as_string())
        << key;
  }
  const std::string file = out_ + "/points/" + failed.at("point").as_string() + ".json";
  const std::string other = out_ + "/points/" + rows()[0].at("point").as_string() + ".json";
  const auto first = file_number(file);
  const auto good = file_number(other);
  EXPECT_EQ(run_moesaic(run()).exit_code, 4);
  EXPECT_EQ(file_number(file), first);
  EXPECT_EQ(run_moesaic(run({"--retry"})).exit_code, 4);
  EXPECT_NE(file_number(file), first);
  EXPECT_EQ(file_number(other), good);
}

TEST_F(StudyFailures, APointWhoseLauncherSaysNothingFailsAndTheOthersGoOn) {
  describe(launcher(std::string("case $ranks in\n"
                                "  1) echo {};;\n"
                                "  2) echo starting 2 ranks;;\n"
                                "  3) echo 3 ranks are too many >&2; exit 127;;\n"
                                "  *) ") +
                    kStartRanks + ";;\nesac\n") +
           "ranks = 1,2,3,4\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 3) << result.text();
  EXPECT_NE(result.err.find("4 of 4 points, 3 of them failed"), std::string::npos) << result.text();
  ASSERT_EQ(rows().size(), 4U);
  for (const auto& [row, words] :
       {std::pair(0, "field \"ranks\" is missing"), {1, "no line with a measurement"}}) {
    const Json line = rows()[static_cast<std::size_t>(row)];
    EXPECT_EQ(line.at("status").as_string(), "failed");
    EXPECT_EQ(line.at("error").at("exit_code").as_int(), 3);
    const std::string told = line.at("error").at("last_words").as_string();
    EXPECT_NE(told.find(words), std::string::npos) << told;
    EXPECT_NE(told.find(line.at("point").as_string() + ".out"), std::string::npos) << told;
  }
  EXPECT_EQ(rows()[2].at("error").at("exit_code").as_int(), 127);
  EXPECT_EQ(rows()[2].at("error").at("last_words").as_string(), "3 ranks are too many");
  EXPECT_EQ(rows()[3].at("status").as_string(), "measured");
}

TEST_F(StudyFailures, APointOfOtherRanksThanItAsksForIsNotMeasured) {
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1,2\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 2) << result.text();
  ASSERT_EQ(rows().size(), 2U);
  EXPECT_EQ(rows()[0].at("status").as_string(), "measured");
  EXPECT_EQ(rows()[1].at("status").as_string(), "failed");
  EXPECT_EQ(rows()[1].at("error").at("last_words").as_string(),
            config_ + ": launcher = env STUDY_RANKS={ranks}: the job had 1 rank, and its point " +
                "has 2");
}

TEST_F(StudyFailures, APointThatLostARankRunsAgainWhenItsStudyGoesOnButNotForEver) {
  const std::string calls = directory_.path_of("calls");
  const std::string broken = "echo called >>" + calls + "; exit 5\n";
  const auto runs = [&](const Arguments& more = {}) {
    const auto before = fs::exists(calls) ? lines_of(read_text(calls)).size() : 0;
    const int code = run_moesaic(run(more)).exit_code;
    return std::pair(code, fs::exists(calls) ? lines_of(read_text(calls)).size() - before : 0);
  };
  const std::string line = launcher(broken);
  describe(line + "ranks = 1\n");
  for (int start = 1; start <= 3; ++start) EXPECT_EQ(runs(), std::pair(5, std::size_t{1})) << start;
  EXPECT_EQ(runs(), std::pair(5, std::size_t{0}));
  EXPECT_EQ(runs({"--retry"}), std::pair(5, std::size_t{1}));
  EXPECT_EQ(runs(), std::pair(5, std::size_t{1}));  // counted from there again
  (void)launcher(kStartRanks);
  EXPECT_EQ(runs().first, 0);
  EXPECT_EQ(rows()[0].at("status").as_string(), "measured");
}

TEST_F(StudyFailures, APointWhoseRankWasKilledRunsAgain) {
  describe(launcher("[ -e " + out_ + "/first ] && " + std::string(kStartRanks) + "touch " + out_ +
                    "/first; kill -KILL $$\n") +
           "ranks = 1\n");
  EXPECT_EQ(run_moesaic(run()).exit_code, 137);
  EXPECT_EQ(run_moesaic(run()).exit_code, 0);
  EXPECT_EQ(rows()[0].at("status").as_string(), "measured");
}

TEST_F(StudyFailures, WhatTheEnvironmentSaysDoesNotMakeItAnotherStudy) {
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1\n");
  ASSERT_EQ(run_program(moesaic_command(run()), {{"MOESAIC_SEQUENCES", "2"}}).exit_code, 0);
  EXPECT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
  const std::string shape = directory_.path_of("shape.ini");
  write_text(shape, "kind = weak\njob = layer\nshape = 8x64x32x2\nranks = 1\nout = " + out_ + "\n");
  EXPECT_EQ(run_program(moesaic_command({"study", "points", shape}), {{"MOESAIC_WIRE", "bf16"}})
                .exit_code,
            0);
}

TEST_F(StudyFailures, ATableOfAnotherStudyIsRefused) {
  const std::string common = "launcher = env STUDY_RANKS={ranks}\nranks = 1\nbatch-size = ";
  describe(common + "4,8,16\n");
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  ASSERT_EQ(run_moesaic({"study", "predict", config_, "--ranks", "2"}).exit_code, 0);
  describe(common + "4,8,32\n");
  for (const Arguments& verb :
       {Arguments{"report"}, {"predict"}, {"export", "extrap"}, {"export", "smpi"}}) {
    expect_failure(run_moesaic(joined(joined({"study"}, verb), {config_})), 2,
                   {out_ + "/study.jsonl: point ", "batch-size = 16", "4,8,32",
                    "moesaic study run " + config_});
  }
  // Of the same points, though more are to come: those that are there.
  describe(common + "4,8,16,64\n");
  EXPECT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
  EXPECT_NE(read_text(out_ + "/report.html").find("<figure id=\"prediction\""), std::string::npos);
  // An option that this file does not name, with another value than it has by itself.
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1\n");
  expect_failure(run_moesaic({"study", "report", config_}), 2, {"batch-size = 4"});
  describe(common + "4,8,32\n");
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  const ProgramResult report = run_moesaic({"study", "report", config_});
  ASSERT_EQ(report.exit_code, 0) << report.text();
  EXPECT_NE(report.err.find(out_ + "/model.json was fitted to other points"), std::string::npos)
      << report.text();
  EXPECT_EQ(read_text(out_ + "/report.html").find("<figure id=\"prediction\""), std::string::npos);
  expect_failure(run_moesaic({"study", "export", "smpi", config_, "--ranks", "2"}), 2,
                 {"model.json was fitted to other points", "moesaic study predict " + config_});
}

TEST_F(StudyFailures, ATableThatDoesNotListItsPointsIsRefused) {
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1\nbatch-size = 4,8\n");
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  const std::string table = out_ + "/study.jsonl";
  const std::string lines = read_text(table);
  const auto refused = [&](const std::string& third, const std::vector<std::string>& texts) {
    write_text(table, lines + third + "\n");
    std::vector<std::string> all = texts;
    all.push_back(table + " line 3");
    expect_failure(run_moesaic({"study", "report", config_}), 3, all);
  };
  refused(lines.substr(0, lines.find('\n')), {"again"});
  refused(R"({"point": "0123"})", {"there is no " + out_ + "/points/0123.json"});
  refused("{", {"not valid JSON"});
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  EXPECT_EQ(read_text(table), lines);
}

TEST_F(StudyFailures, APointWhoseRanksAreAskedToStopIsNotKeptAndRunsAgain) {
  describe(launcher("exit 6\n") + "ranks = 1\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 6) << result.text();
  EXPECT_NE(result.err.find("interrupted (the ranks of a point were asked to stop)"),
            std::string::npos)
      << result.text();
  EXPECT_TRUE(rows().empty());
  for (const auto& entry : fs::directory_iterator(out_ + "/points")) {
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
    EXPECT_NE(entry.path().extension(), ".json") << entry.path();
  }
  (void)launcher(kStartRanks);
  EXPECT_EQ(run_moesaic(run()).exit_code, 0);
  EXPECT_EQ(rows().size(), 1U);
}

TEST_F(StudyFailures, PointsOfDamagedWeightsAreNotMeasured) {
  const std::string model = directory_.path_of("model");
  copy_model("demo-model", model);
  damage_tensor(model, "model.layers.1.input_layernorm.weight", 1);
  write_text(config_, "kind = strong\njob = prompt,generate\nmodel = " + model +
                          "\ntext = " + kText + "\nout = " + out_ +
                          "\nranks = 1\nlauncher = env STUDY_RANKS={ranks}\nsequences = 2\n"
                          "threads = 1\nrepetitions = 2\nn-prompt = 4\nn-gen = 3\n"
                          "no-roofs = true\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 3) << result.text();
  ASSERT_EQ(rows().size(), 2U) << result.text();
  for (const Json& line : rows()) {
    ASSERT_EQ(line.at("status").as_string(), "failed");
    const std::string told = line.at("error").at("last_words").as_string();
    EXPECT_NE(told.find("sequence 1: layer 1 gives values that are not finite"), std::string::npos)
        << told;
  }
}

TEST_F(StudyFailures, MarksThreadsThatShareCores) {
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  int first = 0;
  while (!CPU_ISSET(first, &cpus)) ++first;
  describe("launcher = env STUDY_RANKS={ranks} taskset -c " + std::to_string(first) +
           "\nranks = 1\nthreads = 3\n");
  write_text(config_, [&] {  // the value given last would be refused as a second one
    std::string text = read_text(config_);
    return text.erase(text.find("threads = 1\n"), 12);
  }());
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  const Json line = rows()[0];
  EXPECT_TRUE(line.at("oversubscribed").as_bool());
  EXPECT_EQ(line.at("cores").as_int(), 1);
  EXPECT_FALSE(line.find("speedup"));
  expect_pictures();
}

/// How many tasks an array would need is not told of points of which none could run.
TEST_F(StudyFailures, PointsAreCountedOnceTheirTextsAndTargetsCanBeTaken) {
  const auto fails = [&](int exit_code, const std::vector<std::string>& texts) {
    for (const char* verb : {"points", "run"}) {
      expect_failure(run_moesaic({"study", verb, config_}), exit_code, texts);
    }
    EXPECT_FALSE(fs::exists(out_));
  };
  const std::string text = directory_.path_of("text");
  const auto describe_text = [&](const std::string& words) {
    write_text(text, words);
    describe("ranks = 1\n");
    write_text(config_, replaced(read_text(config_), kText, text));
  };
  describe_text("");
  fails(3, {"study.ini: the text of " + text + " is empty"});
  describe_text("a\xff");
  fails(3, {"study.ini: " + text, "UTF-8"});
  describe("ranks = 1\nlora-targets = attention,no_such\n", "sft");
  fails(2, {"study.ini: --lora-targets", "no_such"});
  describe("ranks = 1\nlora-targets = \"attention,experts\", \" experts, attention\"\n", "sft");
  fails(2, {"study.ini: the points \"lora-targets attention,experts\" and \"lora-targets  experts, "
            "attention\" are the same"});
  describe("ranks = 1\nexpert-format = int8\nprecision = bf16,fp32\n");
  fails(2, {"study.ini: --expert-format int8 does not go with --precision fp32"});
  describe("ranks = 1\nactivation-scales = runtime,checkpoint\n");
  fails(2, {"study.ini: --activation-scales checkpoint is for --nvfp4-activations nvfp4"});
  describe("ranks = 1\nlora-alpha = 16,0\n", "sft");
  fails(2, {"study.ini: --lora-alpha 0"});
}

TEST_F(StudyFailures, SequencesBeyondTheModelAreToldOnce) {
  describe("ranks = 1,2\nbatch-size = 8,16\n");
  write_text(config_, replaced(read_text(config_), "n-prompt = 16", "n-prompt = 16,3000"));
  const ProgramResult result = run_moesaic({"study", "points", config_});
  EXPECT_EQ(result.out, "8\n") << result.text();
  EXPECT_EQ(result.err, "warning: " + config_ +
                            ": --n-prompt 3000 is more than the 2048 tokens that the model was "
                            "made for (max_position_embeddings)\n");
}

TEST_F(StudyFailures, ErrorsNameTheLineAndWhatIsWrong) {
  const auto fails = [&](const std::string& lines, const std::vector<std::string>& texts) {
    describe(lines);
    expect_failure(run_moesaic(run()), 2, texts);
  };
  fails("ranks = 1,x\n", {"study.ini line 10", "ranks", "\"x\""});
  fails("ranks = 1,1\n", {"line 10", "1 twice"});
  fails("ranks = 1\nbach-size = 4\n", {"line 11", "bach-size", "did you mean batch-size?"});
  fails("ranks = 1\nbatch-size = 4,\n", {"line 11", "empty"});
  fails("ranks = 1\nbatch-size = 0\n", {"line 11", "0 is less than 1"});
  fails("ranks = 1\nkind = strong\n", {"line 11", "kind", "twice"});
  write_text(config_, "out = ~/study\n");
  expect_failure(run_moesaic(run()), 2, {"study.ini line 1: out: ~ is a name like any other"});
  fails("ranks = 1\nlauncher = ssh\n", {"study.ini line 11", "launcher", "{ranks}"});
  expect_failure(run_moesaic({"study", "points", config_}), 2, {"line 11", "launcher"});
  fails("ranks = 1\nlauncher = x -n {ranks} -N {ranks-per-node}\n",
        {"study.ini line 11: launcher: {ranks-per-node} stands for nothing", "{ranks_per_node}"});
  fails("ranks = 1,2\nbaseline = 3\n", {"study.ini: baseline = 3", "ranks = 1,2"});
  fails("ranks = 1\nlauncher = no-such-program {ranks}\n",
        {"study.ini: launcher = no-such-program {ranks}: ", "no-such-program: it is not in PATH"});
  fails("ranks = 1\nlauncher = /no/such/program {ranks}\n",
        {"study.ini: launcher = ", "cannot start /no/such/program: No such file or directory"});
  fails("ranks = 4,17\n", {"study.ini line 10: ranks = 17: ", "17 ranks cannot share 16 experts"});
  fails("ranks = 3\nexpert-replicas = 2\n",
        {"study.ini line 10: ranks = 3: --expert-replicas 2 does not divide the 3 ranks"});
  fails("ranks = 1\nbatch-size = 16,016\n",
        {"study.ini: the points \"batch-size 16\" and \"batch-size 016\" are the same"});
  fails("ranks = 1\nn-gen = 8,16\n", {"study.ini line 11: n-gen = 8,16: ", "job = prompt"});
  fails("ranks = 1\ntimeout = 60,90\n", {"study.ini line 11: timeout = 60,90: ", "the same"});
  fails("ranks = 1\nlora-rank = 2,4\n", {"study.ini line 11: lora-rank = 2,4: ", "job = prompt"});
  fails("ranks = 1\nrouting = even,zipf:2\n", {"--routing even is for --shape"});
  fails("ranks = 1\ndefer = 2,5\n", {"study.ini: --defer 5:", "4 experts a token"});
  fails("ranks = 1\nplacement = round-robin\n", {"study.ini: ", "did you mean round_robin?"});
  fails("ranks = 1\nlora-targets = \"experts\n", {"line 11", "quotes do not end"});
  fails("ranks = 1\nlora-targets = \"experts\" attention\n", {"line 11", "attention", "quotes"});
  fails("", {"no ranks"});
  fails("ranks = 1\nshape = granite\n", {"model = DIR and shape = NAME"});
  fails("ranks = 1\nexpert-format = bf16,fp7\n", {"study.ini line 11: ", "fp7"});
  fails("ranks = 1\nexperts = 4\n", {"--experts 4", "--shape"});
  const std::string shape = "ranks = 1\nout = x\nlauncher = env STUDY_RANKS={ranks}\n";
  for (const auto& [lines, text] : {std::pair("shape = granite\n", "--job prompt needs a model"),
                                    {"shape = granit\njob = layer\n", "did you mean granite?"},
                                    {"shape = 8x32x16\njob = layer\n", "8x32x16"},
                                    {"shape = 8x32x16x2\njob = layer\nwire = int8\n",
                                     "--wire int8 is for a model that runs, not for --job layer"},
                                    {"shape = 8x32x16x2\njob = layer,exchange\n"
                                     "expert-format = bf16,int8\n",
                                     "study.ini line 6: expert-format = bf16,int8: points of job = "
                                     "exchange are the same"},
                                    {"kind = experts\nmodel = x\ntext = y\n", "needs a shape"},
                                    {"job = layer\n", "no model = DIR and no shape"}}) {
    write_text(config_, shape + lines);
    expect_failure(run_moesaic(run()), 2, {text});
  }
  write_text(config_, "ranks = 1\nout = x\nmodel = " + kDemo + "\n");
  expect_failure(run_moesaic(run()), 2, {"text", "random"});
  write_text(config_, "ranks = 1\nout = x\nmodel = " + kDemo + "\ntext = random\njob = layer\n");
  expect_failure(run_moesaic(run()), 2, {"study.ini: ", "--shape"});
  write_text(config_, "ranks = 1\nout = x\nmodel = " + kDemo +
                          "\ntext = random\njob = sft\nplacement = round_robin\ndefer = 2\n");
  expect_failure(run_moesaic(run()), 2, {"study.ini: --defer 2 is for a model", "--job sft"});
  expect_failure(run_moesaic({"study", "run"}), 2, {"which study?"});
  expect_failure(run_moesaic({"study", "run", out_ + ".ini"}), 3, {out_ + ".ini"});
  expect_failure(run_moesaic({"study"}), 2, {"study run"});
  describe("ranks = 1\nlauncher = env STUDY_RANKS={ranks}\n");
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  const auto [name, text] = *points().begin();
  write_text(out_ + "/points/" + name, text.substr(0, text.size() / 2));
  expect_failure(run_moesaic(run()), 3, {name, "study run measures the point again"});
}

}  // namespace
}  // namespace moesaic::test
