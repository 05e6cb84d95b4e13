// moesaic study: points that are run, killed, resumed, and fail.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/json.h"
#include "launch/options/split.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

/// The keys of a line of study.jsonl: an interface.
constexpr std::string_view kKeys =
    "point kind job link ranks nodes threads cores oversubscribed experts "
    "experts_per_token layers hidden expert_format replicas sequences tokens routing "
    "transport samples_s seconds ci95_s tokens_per_second cpu_seconds phases "
    "exposed_share late_s transfer_s intra_bytes inter_bytes messages "
    "rows_max_over_mean node_peak_bytes node_planned_bytes load_seconds roof_share disturbed "
    "speedup "
    "efficiency core_efficiency status provenance";

ino_t file_number(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

class StudyProgram : public testing::Test {
 protected:
  /// Writes the study's file: lines that all share, and `more`.
  void describe(const std::string& more) const {
    write_text(config_, "kind = weak\njob = prompt\nmodel = " + kDemo + "\ntext = " + kText +
                            "\nout = " + out_ +
                            "\nthreads = 1\nrepetitions = 2\nn-prompt = 16\nno-roofs = true\n" +
                            more);
  }
  /// Eighteen points that start quickly: one process for each, however many ranks it is to have.
  void describe_quick() const {
    describe(
        "launcher = env STUDY_RANKS={ranks}\nranks = 1,2,3\nbatch-size = 4,8,16\n"
        "expert-format = bf16,int8\n");
  }
  [[nodiscard]] Arguments run(const Arguments& more = {}) const {
    return joined({"study", "run", config_}, more);
  }
  [[nodiscard]] std::vector<Json> rows() const {
    std::vector<Json> rows;
    for (const std::string& line : lines_of(read_text(out_ + "/study.jsonl"))) {
      rows.push_back(Json::parse(line, "study.jsonl"));
    }
    return rows;
  }
  /// The complete points, by the names of their files.
  [[nodiscard]] std::map<std::string, std::string> points() const {
    std::map<std::string, std::string> found;
    if (!fs::exists(out_ + "/points")) return found;
    for (const auto& entry : fs::directory_iterator(out_ + "/points")) {
      if (entry.path().extension() != ".json") continue;
      found[entry.path().filename().string()] = read_text(entry.path().string());
    }
    return found;
  }

  /// What the other verbs make of the points of describe_quick().
  void expect_results_of_eighteen() const {
    const ProgramResult predicted = run_moesaic({"study", "predict", config_, "--ranks", "8,64"});
    ASSERT_EQ(predicted.exit_code, 0) << predicted.text();
    EXPECT_NE(predicted.err.find("64 ranks cannot share"), std::string::npos);
    const Json model = Json::read_file(out_ + "/model.json");
    EXPECT_GT(model.at("terms").size(), 5);
    EXPECT_GT(model.at("leave_one_out").at("median").as_double(), 0);
    EXPECT_EQ(model.at("predictions").size(), 6);  // of three batches and two formats
    const Json first = model.at("predictions").at(0);
    EXPECT_EQ(first.at("ranks").as_int(), 8);
    EXPECT_LE(first.at("low").as_double(), first.at("tokens_per_second").as_double());
    EXPECT_GE(first.at("high").as_double(), first.at("tokens_per_second").as_double());

    const ProgramResult report = run_moesaic({"study", "report", config_});
    ASSERT_EQ(report.exit_code, 0) << report.text();
    EXPECT_EQ(report.out, out_ + "/report.html\n");
    for (const char* figure : {"<figure id=\"prediction\"", "<figure id=\"experts\""}) {
      EXPECT_NE(read_text(out_ + "/report.html").find(figure), std::string::npos) << figure;
    }
    EXPECT_GE(num_files(out_ + "/plots"), 10);
    ASSERT_EQ(run_moesaic({"study", "export", "extrap", config_}).exit_code, 0);
    EXPECT_TRUE(read_text(out_ + "/extrap.txt").starts_with("PARAMETER ranks\nPOINTS 1\n"));
  }

  /// What is written for SimGrid: every message of a rank is awaited by another.
  void expect_traces(int ranks) const {
    const std::string number = std::to_string(ranks);
    const ProgramResult result =
        run_moesaic({"study", "export", "smpi", config_, "--ranks", number});
    ASSERT_EQ(result.exit_code, 0) << result.text();
    for (const std::string& folder : lines_of(result.out)) {
      EXPECT_TRUE(folder.ends_with("-" + number)) << folder;
      std::multiset<std::string> sent;
      std::multiset<std::string> awaited;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string name = std::to_string(rank);
        for (const std::string& line : lines_of(read_text(folder + "/ranks/" + name))) {
          const std::vector<std::string_view> words = split(line, ' ');
          EXPECT_EQ(words[0], name);
          const std::string rest = words.size() == 5 ? " " + std::string(words[4]) : "";
          if (words[1] == "isend") sent.insert(name + ">" + std::string(words[2]) + rest);
          if (words[1] == "irecv") awaited.insert(std::string(words[2]) + ">" + name + rest);
        }
      }
      EXPECT_EQ(sent, awaited);
      EXPECT_EQ(std::ssize(sent), 2 * ranks * (ranks - 1));  // there and back
      EXPECT_EQ(lines_of(read_text(folder + "/hosts")).size(), static_cast<std::size_t>(ranks));
      EXPECT_GE(Json::read_file(folder + "/told.json").at("seconds").as_double(), 0);
    }
  }

  const std::string kText = kData + "/demo-heldout.txt";
  TemporaryDirectory directory_;
  std::string config_ = directory_.path_of("study.ini");
  std::string out_ = directory_.path_of("out");
};

TEST_F(StudyProgram, MeasuresRanksOfTwoPretendedNodes) {
  describe("ranks = 1,2\nranks-per-node = 1\nbatch-size = 8\n");
  const ProgramResult result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const std::vector<Json> lines = rows();
  ASSERT_EQ(lines.size(), 2U);
  for (const Json& line : lines) {
    for (const std::string_view key : split(kKeys, ' ')) {
      EXPECT_TRUE(line.find(key) || key == "roof_share" || key == "speedup" || key == "efficiency")
          << key;
    }
    EXPECT_EQ(line.at("status").as_string(), "measured");
    EXPECT_EQ(line.at("nodes").as_int(), line.at("ranks").as_int());
    EXPECT_EQ(line.at("tokens").as_int(), 16 * line.at("ranks").as_int());
    EXPECT_EQ(line.at("samples_s").size(), 2);
    EXPECT_GT(line.at("cpu_seconds").as_double(), 0);
    EXPECT_GT(line.at("node_peak_bytes").as_int(), 8 << 20);
    EXPECT_GT(line.at("node_planned_bytes").as_int(), 8 << 20);
    EXPECT_EQ(line.at("routing").as_string(), "text");
    // Rows for the experts of another node go there in messages, and nowhere else.
    const bool travels = line.at("ranks").as_int() > 1;
    EXPECT_EQ(line.at("inter_bytes").as_int() > 0, travels);
    EXPECT_EQ(line.at("messages").as_int() > 0, travels);
    EXPECT_EQ(line.at("late_s").as_double() > 0, travels);
    EXPECT_EQ(line.at("intra_bytes").as_int(), 0);
    EXPECT_GE(line.at("transfer_s").as_double(), 0);
  }
  // Each token chooses as many experts in every layer, and the file of a point tells which.
  for (const auto& [name, text] : points()) {
    const Json measurement = Json::parse(text, name).at("measurement");
    EXPECT_EQ(measurement.at("expert_rows").size(), measurement.at("layers").as_int());
    measurement.at("expert_rows").for_each([&](const std::string&, const Json& layer) {
      std::int64_t rows = 0;
      layer.for_each([&](const std::string&, const Json& expert) { rows += expert.as_int(); });
      EXPECT_EQ(rows,
                measurement.at("tokens").as_int() * measurement.at("experts_per_token").as_int());
    });
  }
  EXPECT_EQ(lines[0].at("core_efficiency").as_double(), 1);
  EXPECT_EQ(lines[1].at("provenance").at("hosts").size(), 2);
}

TEST_F(StudyProgram, MeasuresALayerWhoseExpertsGrowWithTheRanks) {
  write_text(
      config_,
      "kind = experts\njob = layer,exchange\nshape = 8x32x16x2\nrouting = even\nout = " + out_ +
          "\nranks = 1,2\nthreads = 1\nrepetitions = 2\nn-prompt = 24\n"
          "batch-size = 10\nranks-per-node = 1\nno-roofs = true\n");
  const ProgramResult result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  ASSERT_EQ(rows().size(), 4U);
  for (const Json& line : rows()) {
    for (const std::string_view key : split(kKeys, ' ')) {
      EXPECT_TRUE(line.find(key) || key == "roof_share" || key == "speedup" ||
                  key == "efficiency" || key == "expert_format")
          << key;
    }
    const std::int64_t ranks = line.at("ranks").as_int();
    const bool computes = line.at("job").as_string() == "layer";
    EXPECT_EQ(line.at("experts").as_int(), 8 * ranks);
    EXPECT_EQ(line.at("layers").as_int(), 1);
    EXPECT_EQ(line.at("tokens").as_int(), 24 * ranks);  // three passes of 8
    EXPECT_EQ(line.at("routing").as_string(), "even");
    EXPECT_EQ(line.find("expert_format").has_value(), computes);
    EXPECT_EQ(line.at("inter_bytes").as_int() > 0, ranks > 1);
    EXPECT_EQ(line.at("phases").at("experts").at("mean_s").as_double() > 0, computes);
    EXPECT_TRUE(line.find("core_efficiency"));  // though the number of experts differs
  }
  // The same rows travel with and without experts.
  EXPECT_EQ(rows()[1].at("inter_bytes").as_int(), rows()[3].at("inter_bytes").as_int());
  const ProgramResult predicted = run_moesaic({"study", "predict", config_, "--ranks", "4"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.text();
  EXPECT_EQ(Json::read_file(out_ + "/model.json").at("predictions").size(), 2);
  expect_traces(4);
  ASSERT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
}

TEST_F(StudyProgram, MeasuresStepsOfFineTuning) {
  describe(
      "launcher = env STUDY_RANKS={ranks}\nranks = 1\nsequences = 3\nlora-rank = 2,4,8\n"
      "lora-targets = experts\n");
  write_text(config_, [&] {
    std::string text = read_text(config_);
    return text.replace(text.find("job = prompt"), 12, "job = sft");
  }());
  const ProgramResult result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  ASSERT_EQ(rows().size(), 3U);
  for (const Json& line : rows()) {
    EXPECT_EQ(line.at("job").as_string(), "sft");
    EXPECT_EQ(line.at("tokens").as_int(), 3 * 16);
    EXPECT_GT(line.at("tokens_per_second").as_double(), 0);
  }
  // Adapters of twice the rank take more memory, by the plan too.
  EXPECT_LT(rows()[0].at("node_planned_bytes").as_int(),
            rows()[1].at("node_planned_bytes").as_int());
  const ProgramResult predicted = run_moesaic({"study", "predict", config_, "--ranks", "4"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.text();
  const Json model = Json::read_file(out_ + "/model.json");
  EXPECT_EQ(model.at("predictions").size(), 3);
  std::set<std::string> terms;
  model.at("terms").for_each(
      [&](const std::string&, const Json& term) { terms.insert(term.at("name").as_string()); });
  for (const char* term :
       {"products.bf16", "products.bf16.back", "adapters", "optimizer", "sums"}) {
    EXPECT_TRUE(terms.contains(term)) << term;
  }
  EXPECT_GE(model.at("leave_one_out").at("median").as_double(), 0);
  ASSERT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
}

TEST_F(StudyProgram, GivesTheSamePointsHoweverOftenItIsKilled) {
  describe_quick();
  std::mt19937 random(7);
  std::map<std::string, std::string> before;
  for (int kill = 0; kill < 20; ++kill) {
    RunningProgram program(moesaic_command(run()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 400));
    program.send(SIGKILL);
    (void)program.wait();
    std::map<std::string, std::string> now = points();
    for (const auto& [name, text] : before) EXPECT_EQ(now[name], text);
    before = now;
  }
  // What the last one had under way may still be about to end.
  ProgramResult result = run_moesaic(run());
  while (result.err.find("another process") != std::string::npos) result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  std::set<std::string> ids;
  for (const Json& line : rows()) ids.insert(line.at("point").as_string());
  EXPECT_EQ(rows().size(), 18U);
  EXPECT_EQ(ids.size(), 18U);
  EXPECT_EQ(num_files(out_ + "/points"), 18);  // and nothing of those that were killed
  EXPECT_EQ(num_files(out_), 2);               // the points, and study.jsonl
  expect_results_of_eighteen();
}

TEST_F(StudyProgram, RunsOnePointATaskAndToldToStopGoesOnLater) {
  describe_quick();
  EXPECT_EQ(run_moesaic({"study", "points", config_}).out, "18\n");
  ASSERT_EQ(run_moesaic(run({"--point", "18"})).exit_code, 0);
  EXPECT_EQ(points().size(), 1U);
  EXPECT_EQ(rows()[0].at("expert_format").as_string(), "int8");
  RunningProgram program(moesaic_command(run()));
  EXPECT_TRUE(program.wait_until([&] { return points().size() > 2; }));
  program.send(SIGUSR1);
  const ProgramResult stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 6) << stopped.text();
  EXPECT_LT(points().size(), 18U);
  EXPECT_EQ(rows().size(), points().size());
}

TEST_F(StudyProgram, KeepsWhatAFailedPointSaidAndRunsItAgainWhenAsked) {
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1\nmemory-limit = 8G,1M\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 4) << result.text();
  ASSERT_EQ(rows().size(), 2U);
  const Json failed = rows()[1];
  EXPECT_EQ(failed.at("status").as_string(), "failed");
  EXPECT_EQ(failed.at("error").at("exit_code").as_int(), 4);
  EXPECT_NE(failed.at("error").at("last_words").as_string().find("not enough memory"),
            std::string::npos);
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

TEST_F(StudyProgram, APointWhoseLauncherSaysNothingFailsAndTheOthersGoOn) {
  const std::string launcher = directory_.path_of("launcher.sh");
  write_text(launcher,
             "ranks=$1; shift\n"
             "case $ranks in\n"
             "  1) echo {};;\n"
             "  2) echo starting 2 ranks;;\n"
             "  *) exec \"$@\";;\n"
             "esac\n");
  describe("launcher = sh " + launcher + " {ranks}\nranks = 1,2,3\n");
  const ProgramResult result = run_moesaic(run());
  EXPECT_EQ(result.exit_code, 3) << result.text();
  EXPECT_NE(result.err.find("3 of 3 points, 2 of them failed"), std::string::npos) << result.text();
  ASSERT_EQ(rows().size(), 3U);
  for (const auto& [row, words] :
       {std::pair(0, "field \"ranks\" is missing"), {1, "no line with a measurement"}}) {
    const Json line = rows()[static_cast<std::size_t>(row)];
    EXPECT_EQ(line.at("status").as_string(), "failed");
    EXPECT_EQ(line.at("error").at("exit_code").as_int(), 3);
    const std::string told = line.at("error").at("last_words").as_string();
    EXPECT_NE(told.find(words), std::string::npos) << told;
    EXPECT_NE(told.find(line.at("point").as_string() + ".out"), std::string::npos) << told;
  }
  EXPECT_EQ(rows()[2].at("status").as_string(), "measured");
}

TEST_F(StudyProgram, MarksThreadsThatShareCores) {
  describe("launcher = env STUDY_RANKS={ranks}\nranks = 1\nthreads = 300\n");
  write_text(config_, [&] {  // the value given last would be refused as a second one
    std::string text = read_text(config_);
    return text.erase(text.find("threads = 1\n"), 12);
  }());
  ASSERT_EQ(run_moesaic(run()).exit_code, 0);
  const Json line = rows()[0];
  EXPECT_TRUE(line.at("oversubscribed").as_bool());
  EXPECT_LT(line.at("cores").as_int(), 300);
  EXPECT_FALSE(line.find("speedup"));
}

TEST_F(StudyProgram, ErrorsNameTheLineAndWhatIsWrong) {
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
  fails("ranks = 1\nlauncher = ssh\n", {"study.ini line 11", "launcher", "{ranks}"});
  expect_failure(run_moesaic({"study", "points", config_}), 2, {"line 11", "launcher"});
  fails("ranks = 1,2\nbaseline = 3\n", {"study.ini: baseline = 3", "ranks = 1,2"});
  fails("ranks = 1\nlauncher = no-such-program {ranks}\n", {"no-such-program", "PATH"});
  fails("", {"no ranks"});
  fails("ranks = 1\nshape = granite\n", {"model = DIR and shape = NAME"});
  fails("ranks = 1\nexperts = 4\n", {"--experts 4", "--shape"});
  const std::string shape = "ranks = 1\nout = x\nlauncher = env STUDY_RANKS={ranks}\n";
  for (const auto& [lines, text] : {std::pair("shape = granite\n", "--job prompt needs a model"),
                                    {"shape = granit\njob = layer\n", "did you mean granite?"},
                                    {"shape = 8x32x16\njob = layer\n", "8x32x16"},
                                    {"kind = experts\nmodel = x\ntext = y\n", "needs a shape"},
                                    {"job = layer\n", "no model = DIR and no shape"}}) {
    write_text(config_, shape + lines);
    expect_failure(run_moesaic(run()), 2, {text});
  }
  write_text(config_, "ranks = 1\nout = x\nmodel = " + kDemo + "\n");
  expect_failure(run_moesaic(run()), 2, {"text", "random"});
  write_text(config_, "ranks = 1\nout = x\nmodel = " + kDemo + "\ntext = random\njob = layer\n");
  expect_failure(run_moesaic(run()), 2, {"study.ini: ", "--shape"});
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
