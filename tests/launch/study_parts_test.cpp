// The parts of moesaic study that need no process: commands, statistics, comparison, files.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "launch/job/rank_info.h"
#include "launch/study/disturbance.h"
#include "launch/study/point_file.h"
#include "launch/study/point_launcher.h"
#include "launch/study/study_results.h"
#include "tests/launch/measured_points.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using test::count;
using test::measured;
using test::study;

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
  for (const auto& [freedom, t] : {std::pair{21, 2.080}, std::pair{121, 1.980}}) {
    std::vector<double> samples;
    for (int i = 0; i <= freedom; ++i) samples.push_back(i % 2 == 0 ? 1 : -1);
    EXPECT_NEAR(mean_interval(samples).half_width.value() * std::sqrt(freedom), t, 1e-3);
  }
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

}  // namespace
}  // namespace moesaic
