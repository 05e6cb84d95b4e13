// What a power cut, a kill or a full disk leaves of the files of moesaic sft and moesaic convert,
// at each moment: a library that is preloaded watches what the program does to a folder, and ends
// it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/launch/disk_model.h"
#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

class WatchedDisk : public testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }

  /// Of a process that is watched.
  [[nodiscard]] Variables watching(const Variables& more = {}) const {
    Variables variables = {{"LD_PRELOAD", MOESAIC_WATCHED_DISK},
                           {"MOESAIC_DISK_FOLDER", folder_},
                           {"MOESAIC_DISK_LOG", log_}};
    variables.insert(more.begin(), more.end());
    return variables;
  }
  /// What a program does, which succeeds.
  [[nodiscard]] DiskModel watched(const ProgramResult& result) const {
    expect_done(result);
    const DiskModel disk(fs::exists(log_) ? read_text(log_) : "");
    fs::remove(log_);
    return disk;
  }
  /// Checkpoints after 1, 2 and 3 steps, the last one, of which one stays.
  static Arguments training(const std::string& out, const Arguments& more = {}) {
    Arguments arguments =
        with_steps("3", sft(out, joined({"--save-every", "1", "--keep", "1"}, more)));
    *std::ranges::find(arguments, "warning") = "info";
    return arguments;
  }

  TemporaryDirectory directory_;
  std::string folder_ = fs::canonical(directory_.path()).string() + "/disk";
  std::string log_ = directory_.path_of("log");
  std::string out_ = folder_ + "/out";
};

/// Which of the things is the first of this kind to this path; counted from 1, 0: none is.
std::size_t number_of(const DiskModel& disk, const std::string& thing) {
  const auto found = std::ranges::find_if(disk.things(), [&](const std::string& each) {
    return each == thing || each.starts_with(thing + " ");
  });
  return found == disk.things().end() ? 0
                                      : static_cast<std::size_t>(found - disk.things().begin()) + 1;
}

void expect_kept_but(const DiskModel& disk, const std::set<std::string>& losable) {
  EXPECT_EQ(disk.mistakes(), std::vector<std::string>{});
  EXPECT_EQ(disk.losable(), losable);
}

TEST_F(WatchedDisk, WhatATrainingWritesTakesItsNameWhenItIsOnTheDisk) {
  for (const auto& [ranks, out] : {std::pair(1, out_), std::pair(2, out_ + "/")}) {
    fs::remove_all(out_);
    const DiskModel disk = watched(run_ranks(ranks, training(out), watching()));
    expect_kept_but(disk, {out_ + "/metrics.jsonl"});  // lines of steps that would be done again
    for (const std::string steps : {"1", "2", "3"}) {
      const std::string place = out_ + "/checkpoint-" + steps;
      EXPECT_GT(number_of(disk, "rename " + place + ".part " + place), 0U) << steps;
    }
    const auto is_here = [&](const std::string& file) {
      return std::ranges::any_of(disk.things(), [&](const std::string& thing) {
        return thing.starts_with("rename ") && thing.ends_with(" " + out_ + "/" + file);
      });
    };
    for (const char* const file : {"adapter_model.safetensors", "adapter_config.json",
                                   "options.ini", "loss.svg", "metrics.jsonl"}) {
      EXPECT_TRUE(is_here(file)) << file;
    }
  }
}

TEST_F(WatchedDisk, ACheckpointThatJoinsFilesOfOthersIsWholeWhenItsStateIsThere) {
  const Arguments keeps = {"--keep", "3"};
  expect_done(run_moesaic(training(out_, keeps)));
  const std::string place = out_ + "/checkpoint-3";
  write_text(place + "/notes.txt", "mine");
  fs::resize_file(place + "/state.safetensors", 20);
  const DiskModel disk =
      watched(run_moesaic(training(out_, joined(keeps, {"--resume"})), watching()));
  expect_kept_but(disk, {out_ + "/metrics.jsonl"});
  const auto joins = [&](const std::string& file) {
    return number_of(disk, "rename " + place + ".part/" + file + " " + place + "/" + file);
  };
  for (const char* const file :
       {"adapter_model.safetensors", "adapter_config.json", "state.safetensors"}) {
    EXPECT_GT(joins(file), 0U) << file;
    EXPECT_LT(joins(file), joins("state.json")) << file;
  }
}

TEST_F(WatchedDisk, WhatAConversionWritesTakesItsNameWhenItIsOnTheDisk) {
  const std::string adapter = directory_.path_of("adapter");
  expect_done(run_moesaic(sft(adapter, {"--max-steps", "1"})));
  const std::vector<Arguments> conversions = {
      {"--shard-size", "64K"},
      {"--lora", adapter, "--merge"},
      {"--lora", adapter, "--adapter-layout", "transformers4"}};
  for (const Arguments& more : conversions) {
    for (const Arguments& again : {Arguments{}, Arguments{"--overwrite"}}) {
      const DiskModel disk =
          watched(run_moesaic(convert_to(out_, joined(more, again)), watching()));
      SCOPED_TRACE(more[0] + " " + more.back());
      expect_kept_but(disk, {});
      const std::string kind = again.empty() ? "rename " : "swap ";
      EXPECT_GT(number_of(disk, kind + out_ + ".part " + out_), 0U);
    }
    fs::remove_all(out_);
  }
}

TEST_F(WatchedDisk, AManifestIsWrittenWhenAllShardsAreOnTheDisk) {
  const DiskModel disk =
      watched(run_moesaic(convert_to(out_, {"--shard-size", "64K"}), watching()));
  const std::size_t manifest = number_of(disk, "make " + out_ + ".part/manifest.json");
  ASSERT_GT(manifest, 0U);
  std::set<std::string> written;
  for (std::size_t i = 0; i < disk.things().size(); ++i) {
    const std::string& thing = disk.things()[i];
    if (thing.find("/packed-") == std::string::npos) continue;
    EXPECT_LT(i, manifest) << thing;
    const std::string path = thing.substr(thing.find('/'));
    if (thing.starts_with("write ")) written.insert(path);
    if (thing.starts_with("sync ")) written.erase(path);
  }
  EXPECT_EQ(written, std::set<std::string>{});
}

/// Runs that something happens to while they save their second checkpoint, and go on.
class DisturbedSave : public WatchedDisk {
 protected:
  void SetUp() override {
    WatchedDisk::SetUp();
    const DiskModel disk = watched(run_moesaic(training(out_), watching()));
    things_ = disk.things();
    begin_ = number_of(disk, "make " + out_ + "/checkpoint-2.part");
    end_ = number_of(disk, "make " + out_ + "/checkpoint-3.part");
    renamed_ = number_of(disk, "rename " + out_ + "/checkpoint-2.part");
    ASSERT_LT(0U, begin_);
    ASSERT_LT(begin_, renamed_);
    ASSERT_LT(renamed_, end_);
    adapter_ = adapter(out_);
    losses_ = losses(out_, "step");
  }
  /// The numbers of all that is done from that save to the next one, of many writes to a file in a
  /// row the first and the last; every third, unless TEST_FAULTS is `all`.
  [[nodiscard]] std::vector<std::size_t> moments() const {
    const char* const wanted = std::getenv("TEST_FAULTS");
    const std::size_t distance = wanted != nullptr && std::string(wanted) == "all" ? 1 : 3;
    std::vector<std::size_t> numbers;
    for (std::size_t i = begin_; i < end_; ++i) {
      const std::string& thing = things_[i - 1];
      if (thing != things_[i - 2] || thing != things_[i]) numbers.push_back(i);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < numbers.size(); i += distance) numbers[kept++] = numbers[i];
    numbers.resize(kept);
    return numbers;
  }
  [[nodiscard]] ProgramResult disturbed(const Variables& variables) const {
    fs::remove_all(out_);
    return run_moesaic(training(out_), watching(variables));
  }
  /// From a whole checkpoint, to the same bytes.
  void expect_goes_on() const {
    const ProgramResult resumed = run_moesaic(training(out_, {"--resume"}));
    expect_done(resumed);
    const bool after_1 = resumed.err.find("going on after step 1\n") != std::string::npos;
    const bool after_2 = resumed.err.find("going on after step 2\n") != std::string::npos;
    EXPECT_TRUE(after_1 || after_2) << resumed.err;
    EXPECT_EQ(resumed.err.find("damaged"), std::string::npos) << resumed.err;
    EXPECT_EQ(adapter(out_), adapter_);
    EXPECT_EQ(losses(out_, "step"), losses_);
    for (const auto& entry : fs::directory_iterator(out_)) {
      EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
    }
  }

  std::vector<std::string> things_;
  std::size_t begin_ = 0;
  std::size_t renamed_ = 0;  // then it is saved
  std::size_t end_ = 0;
  std::string adapter_;
  std::vector<std::pair<std::int64_t, double>> losses_;
};

TEST_F(DisturbedSave, ARunThatIsKilledBeforeAnythingItDoesToTheDiskGoesOn) {
  for (const std::size_t moment : moments()) {
    SCOPED_TRACE(things_[moment - 1]);
    const ProgramResult killed = disturbed({{"MOESAIC_DISK_KILL", std::to_string(moment)}});
    ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.text();
    expect_goes_on();
  }
}

TEST_F(DisturbedSave, ARunThatFindsTheDiskFullTellsWhatIsSavedAndGoesOn) {
  int seen = 0;
  for (const std::size_t moment : moments()) {
    const std::string& thing = things_[moment - 1];
    if (!thing.starts_with("make ") && !thing.starts_with("write ")) continue;
    SCOPED_TRACE(thing);
    const Variables full = {{"MOESAIC_DISK_FULL", std::to_string(moment)}};
    const ProgramResult stopped = disturbed(full);
    const std::string step = moment > renamed_ ? "2" : "1";
    expect_failure(stopped, 4,
                   {"step " + step + " is saved in " + out_ + "; --resume goes on after it",
                    "No space left on device", out_ + "/"});
    expect_goes_on();
    // Killed as it cleans up.
    Variables both = full;
    both["MOESAIC_DISK_KILL"] = std::to_string(moment + 1);
    const ProgramResult killed = disturbed(both);
    EXPECT_TRUE(killed.exit_code == 128 + SIGKILL || killed.exit_code == 4) << killed.text();
    expect_goes_on();
    ++seen;
  }
  EXPECT_GT(seen, 2);
}

}  // namespace
}  // namespace moesaic::test
