// Checkpoints of training: going on from them, damage, and which of them stay.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "src/train/train_state.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_rank.h"

namespace moesaic {
namespace {

/// Steps [first, end) of a run whose state goes through `directory` in between.
std::vector<float> continue_run(const GoldenAdapter& golden, int ranks, std::int64_t first,
                                std::int64_t end, const std::string& directory) {
  std::vector<float> values;
  run_thread_ranks(ranks, [&](Communicator& world) {
    TrainingRank rank(golden, {.precision = Precision::bf16, .ranks = ranks}, world);
    TrainCheckpoints checkpoints(directory, golden.saved());
    const TrainCheckpoints::State state{.masters = rank.adapters().masters(),
                                        .moments = rank.trainer().moments()};
    if (first > 0) {
      const TrainProgress progress = checkpoints.find_newest().value();
      EXPECT_EQ(progress.steps, first);
      EXPECT_EQ(progress.updates, first);
      EXPECT_EQ(progress.digest, "digest");
      rank.trainer().set_updates(progress.updates);
      checkpoints.load(first, rank.exchange(), state);
      rank.adapters().pack(rank.pool());
    }
    const SampleSet set = samples_of(golden);
    for (std::int64_t step = first; step < end; ++step) {
      (void)rank.trainer().step(step, set, step_samples(step, set.size()));
    }
    checkpoints.save({.steps = end, .updates = rank.trainer().updates(), .digest = "digest"}, state,
                     rank.exchange(), {.newest = 2});
    rank.exchange().collect(rank.adapters().masters(),
                            [&](std::int64_t, std::span<const float> a, std::span<const float> b) {
                              values.insert(values.end(), a.begin(), a.end());
                              values.insert(values.end(), b.begin(), b.end());
                            });
  });
  return values;
}

TEST(Trainer, ARunGoesOnFromACheckpointOnOtherRanksWithTheSameBytes) {
  const GoldenAdapter golden("granitemoe-joined");
  const test::TemporaryDirectory whole;
  const test::TemporaryDirectory parts;
  const std::vector<float> expected = continue_run(golden, 1, 0, 6, whole.path());
  (void)continue_run(golden, 2, 0, 2, parts.path());
  (void)continue_run(golden, 3, 2, 5, parts.path());
  EXPECT_EQ(continue_run(golden, 1, 5, 6, parts.path()), expected);
  TrainCheckpoints left(parts.path(), golden.saved());
  EXPECT_EQ(left.find_newest().value().steps, 6);
  EXPECT_EQ(left.count_full(), 2);
  EXPECT_FALSE(std::filesystem::exists(left.path(2))) << "two stay";
  EXPECT_TRUE(std::filesystem::exists(left.path(5)));
}

TEST(TrainCheckpoints, HaveOneNameEach) {
  EXPECT_EQ(checkpoint_steps("checkpoint-60"), 60);
  for (const char* const name :
       {"checkpoint-06", "checkpoint--6", "checkpoint-", "checkpoint-6x", "checkpoint-+6",
        "checkpoints-6", "checkpoint-99999999999999999999"}) {
    EXPECT_EQ(checkpoint_steps(name), std::nullopt) << name;
  }
  EXPECT_TRUE(is_checkpoint_part("checkpoint-60.part"));
  for (const char* const name : {"checkpoint-60", "checkpoint-06.part", "checkpoint-60.part-1",
                                 "checkpoint-60.partial", ".part"}) {
    EXPECT_FALSE(is_checkpoint_part(name)) << name;
  }
}

TEST(TrainCheckpoints, DamagedOnesStayUntilThereIsAnotherAndDoNotCountAsKept) {
  namespace fs = std::filesystem;
  const GoldenAdapter golden("qwen3_moe");
  const test::TemporaryDirectory directory;
  run_thread_ranks(1, [&](Communicator& world) {
    TrainingRank rank(golden, {.precision = Precision::bf16, .ranks = 1}, world);
    const TrainCheckpoints::State state{.masters = rank.adapters().masters(),
                                        .moments = rank.trainer().moments()};
    TrainCheckpoints checkpoints(directory.path(), golden.saved());
    const auto save = [&](std::int64_t steps, std::int64_t keep) {
      checkpoints.save({.steps = steps, .updates = 0, .digest = ""}, state, rank.exchange(),
                       {.newest = keep});
    };
    const auto there = [&] {
      std::set<std::string> names;
      for (const auto& entry : fs::directory_iterator(directory.path())) {
        names.insert(entry.path().filename().string());
      }
      return names;
    };
    for (std::int64_t steps = 1; steps <= 6; ++steps) save(steps, 6);
    fs::remove(checkpoints.path(6) + "/state.json");
    fs::resize_file(checkpoints.path(5) + "/state.safetensors", 1000);
    EXPECT_EQ(checkpoints.find_newest().value().steps, 4);
    EXPECT_EQ(checkpoints.damaged().size(), 2U);
    EXPECT_EQ(checkpoints.count_full(), 5) << "one is cut short";
    checkpoints.remove_all_but({.newest = 1, .also = 2}, 4);
    EXPECT_EQ(there(), (std::set<std::string>{"checkpoint-2", "checkpoint-4", "checkpoint-5",
                                              "checkpoint-6"}));
    checkpoints.remove_all_but({.newest = 1, .also = 3}, 4);
    EXPECT_EQ(there(), (std::set<std::string>{"checkpoint-4", "checkpoint-5", "checkpoint-6"}));
    save(5, 1);
    EXPECT_EQ(there(), std::set<std::string>{"checkpoint-5"});
    save(2, 1);  // of another run than that of 5
    EXPECT_EQ(there(), (std::set<std::string>{"checkpoint-2", "checkpoint-5"}));
    fs::remove_all(checkpoints.path(2));
    fs::remove(checkpoints.path(5) + "/state.safetensors");
    EXPECT_THROW((void)checkpoints.find_newest(), Error);
    fs::remove(checkpoints.path(5) + "/state.json");
    EXPECT_FALSE(checkpoints.find_newest().has_value()) << "an adapter, which may be another's";
    for (const char* const file : {"/adapter_config.json", "/adapter_model.safetensors"}) {
      fs::remove(checkpoints.path(5) + file);
    }
    EXPECT_THROW((void)checkpoints.find_newest(), Error) << "an empty directory";
    std::ofstream(checkpoints.path(5) + "/notes.txt") << "of others";
    EXPECT_FALSE(checkpoints.find_newest()) << "nothing of a checkpoint is left";
    // Of a checkpoint that stands elsewhere the link alone goes.
    save(7, 1);
    fs::rename(checkpoints.path(7), directory.path() + "/elsewhere");
    fs::create_directory_symlink("elsewhere", checkpoints.path(7));
    EXPECT_EQ(checkpoints.find_newest().value().steps, 7);
    save(8, 1);
    EXPECT_FALSE(fs::is_symlink(checkpoints.path(7)));
    EXPECT_TRUE(fs::exists(directory.path() + "/elsewhere/state.json"));
  });
}

}  // namespace
}  // namespace moesaic
