// The parts of moesaic study that need no process: commands, statistics, comparison, reports.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "launch/job/rank_info.h"
#include "launch/study/disturbance.h"
#include "launch/study/point_file.h"
#include "launch/study/point_launcher.h"
#include "launch/study/study_models.h"
#include "launch/study/study_predict.h"
#include "launch/study/study_report.h"
#include "launch/study/study_results.h"
#include "tests/launch/parsed_command.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using test::count;

using Words = std::vector<std::string>;

TEST(MeanInterval, IsThatOfStudent) {
  EXPECT_EQ(mean_interval({3}).mean, 3);
  EXPECT_FALSE(mean_interval({3}).half_width);
  const MeanInterval two = mean_interval({1, 3});
  EXPECT_EQ(two.mean, 2);
  EXPECT_NEAR(two.half_width.value(), 12.706, 1e-9);  // t * deviation / sqrt(n), both sqrt(2)
  const MeanInterval many = mean_interval({10, 12, 9, 11, 13});
  EXPECT_EQ(many.mean, 11);
  EXPECT_NEAR(many.half_width.value(), 2.776 * std::sqrt(2.5) / std::sqrt(5.0), 1e-9);
}

TEST(PointCommand, IsOfTheLauncher) {
  StudyPoint point{.ranks = 4, .link = "1G", .words = {"model=M", "ranks-per-node=2"}};
  point.command.options.ranks_per_node = 2;
  const LaunchPlace alone{.program = "/bin/moesaic"};
  const LaunchPlace slurm{.program = "/bin/moesaic", .in_slurm = true};
  EXPECT_EQ(point_command("auto", point, alone),
            (Words{"mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "/bin/moesaic",
                   "study", "point", "model=M", "ranks-per-node=2"}));
  EXPECT_EQ(point_command("auto", point, slurm),
            (Words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", "4", "--nodes=2",
                   "--ntasks-per-node=2", "/bin/moesaic", "study", "point", "model=M"}));
  EXPECT_EQ(point_command("mpirun", point, slurm), point_command("auto", point, alone));
  const LaunchPlace without_pmix{.program = "/bin/moesaic", .in_slurm = true, .has_pmix = false};
  EXPECT_EQ(point_command("auto", point, without_pmix),
            (Words{"mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "--map-by",
                   "ppr:2:node", "/bin/moesaic", "study", "point", "model=M"}));
  EXPECT_EQ(point_command("srun", point, without_pmix), point_command("auto", point, slurm));
  point.command.options.threads = 16;
  EXPECT_EQ(point_command("srun", point, slurm)[7], "--cpus-per-task=16");
  point.command.options.threads = 0;
  EXPECT_EQ(point_command("hosts {link} {nodes}x{ranks_per_node} -n {ranks}", point, alone),
            (Words{"hosts", "1G", "2x2", "-n", "4", "/bin/moesaic", "study", "point", "model=M"}));
}

RankInfo rank_on(std::string_view machine, std::string_view cpus, int cores, int threads) {
  RankInfo rank;
  machine.copy(rank.machine.data(), rank.machine.size() - 1);
  cpus.copy(rank.cpuset.data(), rank.cpuset.size() - 1);
  rank.cores = cores;
  rank.threads = threads;
  return rank;
}

TEST(CoreUse, CountsCoresThatRanksShareOnce) {
  const std::array fitting = {rank_on("a", "0-3", 4, 2), rank_on("a", "0-3", 4, 2),
                              rank_on("b", "0-3", 4, 3)};
  const CoreUse use = core_use(fitting);
  EXPECT_EQ(use.threads, 7);
  EXPECT_EQ(use.cores, 7);
  EXPECT_FALSE(use.is_oversubscribed);
  const std::array shared = {rank_on("a", "0-1", 2, 1), rank_on("a", "0-1", 2, 1),
                             rank_on("a", "0-1", 2, 1), rank_on("a", "0-1", 2, 1)};
  EXPECT_EQ(core_use(shared).cores, 2);
  EXPECT_TRUE(core_use(shared).is_oversubscribed);
}

TEST(CoreUse, CountsCoresOfHostsThatAreOneMachineOnce) {
  std::array ranks = {rank_on("a", "0-1", 2, 2), rank_on("a", "0-1", 2, 2)};
  ranks[0].host[0] = '1';
  ranks[1].host[0] = '2';
  EXPECT_EQ(core_use(ranks).cores, 2);
  EXPECT_TRUE(core_use(ranks).is_oversubscribed);
}

TEST(CpuTicks, AreThoseOfAllCpus) {
  const CpuTicks ticks = parse_cpu_ticks("cpu  10 1 5 80 2 0 1 7 3 0\ncpu0 1 1 1 1 1 1 1 1\n");
  EXPECT_EQ(ticks.all, 106);
  EXPECT_EQ(ticks.stolen, 7);
  EXPECT_EQ(parse_cpu_ticks("cpu 1 2 x").all, 0);
  EXPECT_EQ(parse_cpu_ticks("").all, 0);
}

TEST(LastWords, AreTheErrorOrTheEnd) {
  EXPECT_EQ(last_words("starting\n[rank 1/2 h] error: no memory\n-----\nmpirun: it ended\n-----\n"),
            "[rank 1/2 h] error: no memory");
  EXPECT_EQ(last_words("-----\nmpirun noticed\nsignal 9\n-----\n"), "mpirun noticed signal 9");
  EXPECT_EQ(last_words(std::string(2000, 'x')).size(), 600U);
}

PointRecord measured(std::int64_t ranks, double seconds, const std::string& batch) {
  PointRecord record{.id = "id" + std::to_string(ranks) + batch, .kind = "strong", .job = "prompt"};
  record.ranks = ranks;
  record.options = {{"batch-size", batch}, {"sequences", "4"}};
  record.launch.start = "2026-01-02T03:04:05Z";
  Measurement m;
  m.ranks = m.threads = m.cores = ranks;
  m.tokens = 1000;
  m.samples = {seconds, seconds};
  m.seconds = seconds;
  m.ci95 = seconds / 10;
  m.phases[static_cast<std::size_t>(Phase::experts)] = {seconds / 2, seconds / 2};
  m.phases[static_cast<std::size_t>(Phase::wait)] = {seconds / 4, seconds / 3};
  m.experts = m.layers = 2;
  m.experts_per_token = 1;
  m.hidden = m.sequences = 4;
  m.expert_format = "<b>";
  record.measurement = m;
  return record;
}

std::vector<StudyRow> study() {
  PointRecord shared = measured(8, 3, "32");
  shared.measurement->is_oversubscribed = true;
  shared.measurement->cores = 4;
  PointRecord failed = measured(16, 1, "32");
  failed.measurement.reset();
  failed.error = PointError{4, "not enough <memory>"};
  return compare_points(
      {measured(2, 8, "32"), measured(4, 5, "32"), shared, failed, measured(2, 6, "64")},
      std::nullopt);
}

TEST(ComparePoints, TakesTheFewestRanksOfEachGroup) {
  const std::vector<StudyRow> rows = study();
  EXPECT_EQ(rows[0].speedup, 1);
  EXPECT_EQ(rows[1].speedup, 8.0 / 5);
  EXPECT_EQ(rows[1].efficiency, 8.0 / 5 / 2);
  EXPECT_FALSE(rows[2].speedup);
  EXPECT_FALSE(rows[2].efficiency);
  EXPECT_NEAR(*rows[2].core_efficiency, 8.0 / 3 / 2, 1e-12);
  EXPECT_FALSE(rows[3].core_efficiency);
  EXPECT_EQ(rows[4].speedup, 1);  // alone in its group
  const std::vector<StudyRow> other =
      compare_points({measured(2, 8, "32"), measured(4, 5, "32")}, 4);
  EXPECT_EQ(other[0].speedup, 5.0 / 8);
}

/// The speed-up of the second point.
std::optional<double> speedup_of(const std::string& kind, const PointRecord& one,
                                 const PointRecord& two) {
  std::vector<PointRecord> records = {one, two};
  for (PointRecord& record : records) record.kind = kind;
  const std::vector<StudyRow> rows = compare_points(records, std::nullopt);
  EXPECT_EQ(group_labels(rows)[0] == group_labels(rows)[1], rows[1].speedup != 1);
  return rows[1].speedup;
}

TEST(ComparePoints, OfAStrongStudyHaveAsMuchToDo) {
  const PointRecord one = measured(1, 8, "32");
  PointRecord two = measured(2, 5, "32");
  EXPECT_EQ(speedup_of("strong", one, two), 8.0 / 5);
  two.options["sequences"] = "8";
  EXPECT_EQ(speedup_of("strong", one, two), 1);  // alone in its group
}

TEST(ComparePoints, OfAWeakStudyHaveAsMuchToDoOnEachRank) {
  const PointRecord one = measured(1, 8, "32");
  PointRecord two = measured(2, 5, "32");
  EXPECT_EQ(speedup_of("weak", one, two), 1);
  two.options["sequences"] = "8";
  EXPECT_EQ(speedup_of("weak", one, two), 8.0 / 5);
}

TEST(PointRecord, ComesBackFromItsText) {
  PointRecord record = study()[1].record;
  record.measurement->expert_rows = {{1, 2}, {30, 0}};
  const Measurement again =
      parse_measurement(Json::parse(measurement_json(*record.measurement), "a test"));
  EXPECT_EQ(measurement_json(again), measurement_json(*record.measurement));
  EXPECT_EQ(again.expert_rows, record.measurement->expert_rows);
}

TEST(PointRecord, OfOneRepetitionHasNoInterval) {
  Measurement one = *measured(2, 8, "32").measurement;
  one.samples = {8};
  one.ci95.reset();
  const std::string text = measurement_json(one);
  EXPECT_EQ(count(text, "\"ci95_s\": null"), 1) << text;
  EXPECT_FALSE(parse_measurement(Json::parse(text, "a test")).ci95);
  const std::string old = std::string(text).replace(text.find("null", text.find("ci95_s")), 4, "0");
  EXPECT_FALSE(parse_measurement(Json::parse(old, "a test")).ci95);
}

/// A point's file with one field replaced, and what is said of it.
class PointFile : public testing::Test {
 protected:
  PointFile() {
    PointRecord record = study()[1].record;  // of 4 ranks
    record.measurement->expert_rows = {{1, 2}, {30, 0}};
    good_ = point_record_json(record);
  }

  [[nodiscard]] PointRecord read(const std::string& text) const {
    test::write_text(path_, text);
    return read_point_record(path_);
  }
  /// Of the measurement: "name": value.
  [[nodiscard]] std::string field(const std::string& name) const {
    const std::size_t at = good_.find("\"" + name + "\": ", measurement());
    return good_.substr(at, good_.find(", ", at) - at);
  }
  void expect_refusal(const std::string& from, const std::string& to, const std::string& told) {
    std::string text = good_;
    const std::size_t at = text.find(from, measurement());
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string error = test::error_message([&] { (void)read(text); }, ErrorKind::file);
    EXPECT_TRUE(error.starts_with(path_ + ": measurement." + told)) << to << ": " << error;
    EXPECT_NE(error.find("study run measures the point again"), std::string::npos) << error;
  }

  std::string good_;

 private:
  [[nodiscard]] std::size_t measurement() const { return good_.find("\"measurement\""); }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path_of("point.json");
};

TEST_F(PointFile, IsReadAsItWasWritten) {
  EXPECT_EQ(point_record_json(read(good_)), good_);
}

TEST_F(PointFile, IsRefusedWithNumbersThatNoRunHas) {
  for (const std::string count : {"ranks", "nodes", "threads", "cores", "replicas", "experts",
                                  "experts_per_token", "layers", "hidden", "sequences", "tokens"}) {
    expect_refusal(field(count), "\"" + count + "\": 0", count + ": 0 is not from 1 to ");
  }
  expect_refusal(field("ranks"), "\"ranks\": 4000000000", "ranks: 4000000000 is not from 1 to ");
  expect_refusal(field("nodes"), "\"nodes\": 5", "nodes: 5 is not from 1 to 4");
  expect_refusal(field("replicas"), "\"replicas\": 3", "replicas: 3 does not divide the 4 ranks");
  expect_refusal(field("experts_per_token"), "\"experts_per_token\": 3",
                 "experts_per_token: 3 is not from 1 to 2");
  expect_refusal(field("seconds"), "\"seconds\": 0", "seconds: 0 is not above 0");
  expect_refusal(field("late_s"), "\"late_s\": -1", "late_s: -1 is below 0");
  expect_refusal(field("intra_bytes"), "\"intra_bytes\": -1", "intra_bytes: -1 is not from 0 to ");
}

TEST_F(PointFile, IsRefusedWithOtherSamplesPhasesOrLayers) {
  expect_refusal("[5,5]", "[]", "samples_s: expected a time of each repetition");
  expect_refusal("[5,5]", "[5,0]", "samples_s[1]: 0 is not above 0");
  expect_refusal("\"wait\"", "\"sleep\"", "phases.sleep: there is no phase \"sleep\"");
  expect_refusal("\"wait\": {\"mean_s\": 1.25, \"max_s\": 1.6666666666666667}, ", "",
                 "phases: field \"wait\" is missing");
  expect_refusal("[1,2]", "[]", "expert_rows[0]: rows of 0 experts, expected 2");
  expect_refusal("[1,2]", "[1,-2]", "expert_rows[0][1]: -2 is not from 0 to ");
  expect_refusal("[1,2]", "[1,2],[1,2]", "expert_rows: 3 layers, expected 2 at most");
}

TEST(Report, ShowsEveryPointAndAsksForNothing) {
  const std::vector<StudyRow> rows = study();
  const std::vector<ReportPlot> plots = report_plots(rows);
  const std::string html =
      report_html(rows, plots, {.title = "a <study>", .price_per_node_hour = 2});
  EXPECT_EQ(count(html, "<svg "), std::ssize(plots));
  EXPECT_EQ(count(html, "</svg>"), std::ssize(plots));
  for (const char* request : {"<script", "src=", "url(", "@import", "http://", "https://"}) {
    const std::int64_t names = std::string(request) == "http://" ? std::ssize(plots) : 0;  // xmlns
    EXPECT_EQ(count(html, request), names) << request;
  }
  EXPECT_EQ(count(html, "not enough &lt;memory&gt;"), 1);
  EXPECT_NE(html.find("a &lt;study&gt;"), std::string::npos);
  for (const char* name : {"speedup", "efficiency", "core_efficiency", "throughput", "phases",
                           "exposed", "balance", "memory", "cost"}) {
    EXPECT_EQ(count(html, std::string("<figure id=\"") + name + "\""), 1) << name;
  }
  const std::string csv = points_csv(rows, {.title = "", .price_per_node_hour = 2});
  EXPECT_EQ(count(csv, "\n"), 6);
  // 2 an hour, 8 s for 1000 tokens: 4.444 for a million.
  EXPECT_NE(csv.find("\"4.444\""), std::string::npos) << csv;
}

TEST(Report, DrawsSharedCoresHollowAndLeavesThemOutOfSpeedUp) {
  for (const ReportPlot& plot : report_plots(study())) {
    const std::int64_t hollow = count(plot.svg, "<circle") - count(plot.svg, "fill=\"#");
    if (plot.name == "speedup" || plot.name == "efficiency") {
      EXPECT_EQ(count(plot.svg, "<circle"), 3) << plot.name;
      EXPECT_EQ(hollow, 0) << plot.name;
    } else if (plot.name == "throughput") {
      EXPECT_EQ(count(plot.svg, "<circle"), 4);
      EXPECT_EQ(hollow, 1);
    }
  }
}

TEST(Report, TellsNoIntervalOfOneRepetition) {
  PointRecord one = measured(2, 8, "32");
  const auto bars = [&] {
    const auto plots = report_plots(compare_points({one, measured(4, 5, "32")}, std::nullopt));
    const auto found = std::ranges::find(plots, "throughput", &ReportPlot::name);
    return count(found->svg, "<path stroke=\"#1f5f9f\" d=\"M");
  };
  EXPECT_EQ(bars(), 2);
  one.measurement->samples = {8};
  one.measurement->ci95.reset();
  EXPECT_EQ(bars(), 1);
  const std::string csv = points_csv(compare_points({one}, std::nullopt), {});
  EXPECT_NE(csv.find("\"8.000\",\"\",\"125.0\""), std::string::npos) << csv;
}

TEST(Report, DrawsTokensASecondOverTheBatchWhereItDiffers) {
  const auto batches = [](const std::vector<PointRecord>& records) {
    const auto plots = report_plots(compare_points(records, std::nullopt));
    const auto found = std::ranges::find(plots, "batches", &ReportPlot::name);
    return found == plots.end() ? std::string() : found->svg;
  };
  const PointRecord one = measured(1, 8, "32");
  const PointRecord two = measured(2, 8, "32");
  EXPECT_EQ(batches({one, two}), "");
  const std::string svg = batches({one, measured(1, 6, "64"), two, measured(2, 3, "128")});
  EXPECT_EQ(count(svg, "<circle"), 4);
  EXPECT_EQ(count(svg, ">1 rank<"), 1);
  EXPECT_EQ(count(svg, ">2 ranks<"), 1);
  EXPECT_EQ(count(svg, ">batch-size<"), 1);
}

TEST(Report, DrawsRowsOfExpertsOfThePointWithMostTokens) {
  PointRecord few = measured(1, 8, "32");
  few.measurement->expert_rows = {{1, 1, 1, 1}};
  PointRecord many = measured(2, 8, "32");
  many.measurement->tokens = 2000;
  many.measurement->expert_rows = {{0, 2, 6, 4}, {3, 3, 3, 3}};
  PointRecord other = measured(1, 8, "64");
  other.options["model"] = "another";
  other.measurement->expert_rows = {{5, 5, 5, 5}, {0, 0, 0, 0}};
  std::vector<ReportPlot> maps;
  for (const ReportPlot& plot : report_plots(compare_points({few, many, other}, std::nullopt))) {
    if (plot.name.starts_with("experts")) maps.push_back(plot);
  }
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_NE(maps[0].note.find("point 2, 2000 tokens"), std::string::npos) << maps[0].note;
  EXPECT_NE(maps[0].note.find("darkest 2.00 times"), std::string::npos) << maps[0].note;
  EXPECT_EQ(count(maps[0].svg, "<title>"), 8);
  EXPECT_EQ(count(maps[0].svg, "<title>1</title>"), 4);  // all of the second layer
  EXPECT_EQ(count(maps[0].svg, "fill=\"rgb(255,255,255)\"><title>0</title>"), 1);
  EXPECT_EQ(maps[1].name, "experts-2");
  EXPECT_EQ(count(maps[1].svg, "nan"), 0);
}

TEST(Report, DrawsPredictionsDashed) {
  const std::vector<StudyRow> rows = study();
  const std::vector<Prediction> told = {{.group = "batch-size 32",
                                         .ranks = 64,
                                         .tokens_per_second = {1000, 900, 1100},
                                         .is_far = true}};
  const std::vector<ReportPlot> plots = report_plots(rows, told);
  EXPECT_EQ(plots.back().name, "prediction");
  EXPECT_EQ(count(plots.back().svg, "<polyline"), 3);
  EXPECT_EQ(report_plots(rows).size() + 1, plots.size());
}

TEST(StudyModels, RanksShareWholeCopiesOfTheExperts) {
  PointRecord record = measured(4, 5, "32");
  record.job = "layer";
  record.options["job"] = "layer";
  record.options["shape"] = "8x32x16x2";
  record.measurement->replicas = 2;
  StudyModels models(compare_points({record}, std::nullopt));
  const auto obstacle = [&](std::int64_t ranks) {
    return models.obstacle(StudyModels::plan(record, ranks));
  };
  EXPECT_EQ(obstacle(2), "");
  EXPECT_EQ(obstacle(16), "");
  EXPECT_EQ(obstacle(1), "--expert-replicas 2 does not divide the 1 ranks");
  EXPECT_EQ(obstacle(7), "--expert-replicas 2 does not divide the 7 ranks");
  EXPECT_EQ(obstacle(18),
            "18 ranks cannot share 8 experts: take at most 16 ranks, or more --expert-replicas");
}

/// Amounts of a point of the demo model, a rank a node, by the names of their terms.
std::map<std::string, double> amounts_of(std::int64_t ranks,
                                         std::map<std::string, std::string> options) {
  PointRecord record = measured(1, 5, "32");
  record.options = std::move(options);
  record.options["model"] = MOESAIC_TEST_DATA "/demo-model";
  record.options["ranks-per-node"] = "1";
  StudyModels models(compare_points({record}, std::nullopt));
  const PointPlan plan = StudyModels::plan(record, ranks);
  const PointTerms terms = models.terms(plan);
  const std::vector<double> amounts = terms.amounts(plan, ExpertPopularity::even());
  std::map<std::string, double> named;
  for (std::size_t i = 0; i < amounts.size(); ++i) named[terms.names()[i].name] = amounts[i];
  return named;
}

TEST(PointTerms, RanksWithoutSequencesAddNoWork) {
  for (const char* job : {"prompt", "generate", "sft"}) {
    const auto of = [&](std::int64_t ranks) {
      return amounts_of(ranks, {{"job", job}, {"sequences", "2"}, {"n-prompt", "64"}});
    };
    auto two = of(2);
    auto eight = of(8);
    // Each sequence has its rank: with more of them only the experts' rows are spread further.
    EXPECT_EQ(eight["attention"], two["attention"]) << job;
    EXPECT_EQ(eight["steps"], two["steps"]) << job;
    EXPECT_LT(eight["products.bf16"], two["products.bf16"]) << job;
    // The node of a sequence sends its rows and takes its results, as before.
    EXPECT_LT(eight["link.bytes"], 2.5 * two["link.bytes"]) << job;
  }
}

TEST(PointTerms, ARankRunsOnePromptAtATime) {
  const auto steps = [](const char* batch) {
    return amounts_of(2, {{"sequences", "5"}, {"n-prompt", "48"}, {"batch-size", batch}})["steps"];
  };
  EXPECT_EQ(steps("512"), 3);
  EXPECT_EQ(steps("32"), 3 * 2);
}

TEST(StudyPredict, TellsNoExchangesOfARankAlone) {
  const test::TemporaryDirectory out;
  const std::string config = out.path_of("study.ini");
  std::string batches;
  std::vector<std::string> ids;
  const PointPlace place(out.path());
  place.make();
  for (int rows = 16; rows <= 64; ++rows) {
    const std::string batch = std::to_string(rows);
    // Of weights, rows and passes, none of which is the least that the others leave.
    const double passes = std::ceil(4096.0 / rows);
    PointRecord record = measured(1, 0.01 + 3e-4 * passes + 1e-6 * (rows % 7), batch);
    record.options["model"] = MOESAIC_TEST_DATA "/demo-model";
    record.options["n-prompt"] = "4096";
    test::write_text(place.file(record.id), point_record_json(record));
    batches += (batches.empty() ? "" : ",") + batch;
    ids.push_back(record.id);
  }
  test::write_text(config, "out = " + out.path() +
                               "\nranks = 1\nsequences = 4\ntext = random\nn-prompt = 4096\n" +
                               "model = " MOESAIC_TEST_DATA "/demo-model\nbatch-size = " + batches +
                               "\n");
  (void)write_results(read_study(config), ids);
  ASSERT_EQ(run_study_predict(
                test::parse({"study", "predict", config, "--ranks", "1", "--log-level", "error"})),
            0);
  const std::vector<Prediction> predictions = read_predictions(out.path());
  ASSERT_EQ(predictions.size(), ids.size());
  for (const Prediction& told : predictions) {
    EXPECT_GT(told.compute_seconds, 0);
    EXPECT_EQ(told.exchange_seconds, 0) << told.group;
    EXPECT_FALSE(std::signbit(told.exchange_seconds)) << told.group;
  }
}

TEST(StudyPredict, TellsNoEndOfARateWhoseTimeMayBeNone) {
  const test::TemporaryDirectory out;
  test::write_text(
      out.path_of("model.json"),
      R"({"predictions":[{"group":"","ranks":4,"nodes":2,"tokens_per_second":5.5,"low":2,)"
      R"("high":null,"far":false,"phases":{"compute_s":0,"exchange_s":1,"steps_s":0}}]})");
  const std::vector<Prediction> predictions = read_predictions(out.path());
  ASSERT_EQ(predictions.size(), 1U);
  EXPECT_EQ(predictions[0].tokens_per_second.low, 2);
  EXPECT_EQ(predictions[0].tokens_per_second.value, 5.5);
  EXPECT_TRUE(std::isinf(predictions[0].tokens_per_second.high));
}

}  // namespace
}  // namespace moesaic
