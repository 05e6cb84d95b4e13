// moesaic study: points that are run, killed and resumed, and what is made of them.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/split.h"
#include "tests/launch/program.h"
#include "tests/launch/study_program.h"
#include "tests/support/text.h"

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

class StudyResults : public StudyProgram {
 protected:
  /// What the other verbs make of the points of describe_quick().
  void expect_results_of_eighteen() const {
    const ProgramResult predicted = run_moesaic({"study", "predict", config_, "--ranks", "8,64"});
    ASSERT_EQ(predicted.exit_code, 0) << predicted.text();
    EXPECT_EQ(count(predicted.err, "64 ranks are left out: 64 ranks cannot share"), 1)
        << predicted.err;  // not once for each group
    const Json model = Json::read_file(out_ + "/model.json");
    EXPECT_GT(model.at("terms").size(), 5);
    EXPECT_GT(model.at("leave_one_out").at("median").as_double(), 0);
    EXPECT_EQ(model.at("predictions").size(), 18);  // each point has work of its own
    const Json first = model.at("predictions").at(0);
    EXPECT_EQ(first.at("ranks").as_int(), 8);
    EXPECT_LE(first.at("low").as_double(), first.at("tokens_per_second").as_double());
    const auto high = first.find("high");  // null: the points do not tell
    EXPECT_TRUE(!high || high->as_double() >= first.at("tokens_per_second").as_double());

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
  void expect_traces(int ranks, int layers = 1) const {
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
      EXPECT_EQ(std::ssize(sent), 2 * layers * ranks * (ranks - 1));  // there and back
      EXPECT_EQ(lines_of(read_text(folder + "/hosts")).size(), static_cast<std::size_t>(ranks));
      EXPECT_GT(Json::read_file(folder + "/told.json").at("seconds").as_double(), 0);
    }
  }
};

TEST_F(StudyResults, MeasuresRanksOfTwoPretendedNodes) {
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

TEST_F(StudyResults, MeasuresALayerWhoseExpertsGrowWithTheRanks) {
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
  const ProgramResult reported = run_moesaic({"study", "report", config_});
  ASSERT_EQ(reported.exit_code, 0) << reported.text();
}

TEST_F(StudyResults, FitsEachLinkByItself) {
  write_text(config_,
             "kind = weak\njob = exchange\nshape = 8x32x16x2\nrouting = even\nout = " + out_ +
                 "\nlauncher = env STUDY_LINK={link} mpirun --oversubscribe --bind-to none -n "
                 "{ranks}\nlink = slow,fast\nranks = 1,2\nranks-per-node = 1\nthreads = 1\n"
                 "repetitions = 2\nn-prompt = 24\nno-roofs = true\n");
  const ProgramResult result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  ASSERT_EQ(run_moesaic({"study", "predict", config_, "--ranks", "4"}).exit_code, 0);
  std::set<std::string> terms;
  Json::read_file(out_ + "/model.json")
      .at("terms")
      .for_each(
          [&](const std::string&, const Json& term) { terms.insert(term.at("name").as_string()); });
  for (const char* term : {"link.slow.messages", "link.slow.bytes", "link.fast.bytes"}) {
    EXPECT_TRUE(terms.contains(term)) << term;
  }
  EXPECT_FALSE(terms.contains("link.bytes"));
  expect_traces(4);
}

TEST_F(StudyResults, TellsWaysOfExchangesApart) {
  describe(
      "ranks = 2\nranks-per-node = 1\nwire = exact,int8\ndefer = 0,1\n"
      "placement = contiguous,round_robin\n");
  const ProgramResult result = run_moesaic(run());
  ASSERT_EQ(result.exit_code, 0) << result.text();
  ASSERT_EQ(rows().size(), 8U);
  std::map<std::string, std::int64_t> bytes;
  for (const Json& line : rows()) {
    const Json options = line.at("provenance").at("options");
    bytes[options.at("wire").as_string() + options.at("defer").as_string() +
          options.at("placement").as_string()] = line.at("inter_bytes").as_int();
  }
  EXPECT_EQ(bytes.size(), 8U);
  EXPECT_LT(bytes.at("int80contiguous"), bytes.at("exact0contiguous"));
  EXPECT_NE(bytes.at("exact0round_robin"), bytes.at("exact0contiguous"));
  ASSERT_EQ(run_moesaic({"study", "predict", config_, "--ranks", "4"}).exit_code, 0);
  const Json model = Json::read_file(out_ + "/model.json");
  EXPECT_EQ(model.at("predictions").size(), 8);
  std::set<std::string> terms;
  model.at("terms").for_each(
      [&](const std::string&, const Json& term) { terms.insert(term.at("name").as_string()); });
  for (const char* term : {"node.defer-0.bytes", "node.defer-1.bytes", "link.defer-0.bytes",
                           "link.defer-1.messages"}) {
    EXPECT_TRUE(terms.contains(term)) << term;
  }
  EXPECT_FALSE(terms.contains("link.bytes"));
  expect_traces(4, 5);
  ASSERT_EQ(run_moesaic({"study", "report", config_}).exit_code, 0);
  EXPECT_NE(read_text(out_ + "/points.csv").find("defer 1, placement round_robin, wire int8"),
            std::string::npos)
      << read_text(out_ + "/points.csv");
}

TEST_F(StudyResults, AQuotedValueIsOneHoweverManyCommasItHas) {
  describe(
      "ranks = 1\nlora-targets = \"experts,attention\", experts  # two values\n"
      "seed = 3\nlink = \"a, \\\"b\\\"\",c\n",
      "sft");
  const ProgramResult result = run_moesaic({"study", "points", config_, "--log-level", "debug"});
  EXPECT_EQ(result.out, "4\n") << result.text();
  for (const char* label :
       {" lora-targets experts,attention, link a, \"b\"\n", " lora-targets experts, link c\n"}) {
    EXPECT_NE(result.err.find(label), std::string::npos) << label << result.err;
  }
}

TEST_F(StudyResults, MeasuresStepsOfFineTuning) {
  describe(
      "launcher = env STUDY_RANKS={ranks}\nranks = 1\nsequences = 3\nlora-rank = 2,4,8\n"
      "lora-targets = experts\n",
      "sft");
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
  EXPECT_GT(model.at("leave_one_out").at("median").as_double(), 0);
  const ProgramResult reported = run_moesaic({"study", "report", config_});
  ASSERT_EQ(reported.exit_code, 0) << reported.text();
}

TEST_F(StudyResults, GivesTheSamePointsHoweverOftenItIsKilled) {
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
  for (const auto& entry : std::filesystem::directory_iterator(out_)) {
    const std::string name = entry.path().filename().string();  // or of what was killed there
    EXPECT_TRUE(name == "points" || name.starts_with("study.jsonl")) << name;
  }
  expect_results_of_eighteen();
}

TEST_F(StudyResults, RunsOnePointATaskAndToldToStopGoesOnLater) {
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

}  // namespace
}  // namespace moesaic::test
