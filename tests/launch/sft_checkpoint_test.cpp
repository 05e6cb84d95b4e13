// Checkpoints of moesaic sft that are damaged, and how many of them stay.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/launch/broken_models.h"
#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

/// Checkpoints after 2, 4 and 6 steps, the last one.
Arguments with_checkpoints(const std::string& out, const Arguments& more = {}) {
  return sft(out, joined({"--save-every", "2", "--keep", "3"}, more));
}

std::set<std::string> checkpoints(const std::string& out) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-")) names.insert(name);
  }
  return names;
}

void flip_byte(const std::string& path, std::size_t at) {
  std::string bytes = read_text(path);
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_text(path, bytes);
}

/// Something that happens to a checkpoint, and a file of it that is named then.
struct Damage {
  std::string what;
  std::string named;
  std::function<void(const std::string& checkpoint)> happens;
};

std::vector<Damage> damages() {
  const std::string state = "/state.json";
  const std::string values = "/state.safetensors";
  return {
      {"values cut short", values, [=](const auto& at) { fs::resize_file(at + values, 50'000); }},
      {"a value", state,
       [=](const auto& at) { flip_byte(at + values, fs::file_size(at + values) / 2); }},
      {"the header of the values", values, [=](const auto& at) { flip_byte(at + values, 3); }},
      {"the digest", state,
       [=](const auto& at) {
         flip_byte(at + state, read_text(at + state).find("\"digest\"") + 13);
       }},
      {"a count", state,
       [=](const auto& at) {
         flip_byte(at + state, read_text(at + state).find("\"updates\": ") + 11);
       }},
      {"the format", state,
       [=](const auto& at) {
         flip_byte(at + state, read_text(at + state).find("moesaic-sft") + 3);
       }},
      {"a link to itself", state,
       [=](const auto& at) {
         fs::remove_all(at);
         fs::create_symlink("checkpoint-6", at);
       }},
      {"state.json cut short", state, [=](const auto& at) { fs::resize_file(at + state, 20); }},
      {"no state.json", state, [=](const auto& at) { fs::remove(at + state); }},
      {"no values", values, [=](const auto& at) { fs::remove(at + values); }}};
}

TEST(SftCheckpoints, ADamagedOneIsToldOfAndARunGoesOnFromTheOneBefore) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path_of("whole");
  expect_done(run_moesaic(with_checkpoints(whole)));
  for (const Damage& damage : damages()) {
    for (const int ranks : {1, 2}) {
      const std::string out = directory.path_of("out");
      fs::remove_all(out);
      fs::copy(whole, out, fs::copy_options::recursive);
      fs::remove(out + "/adapter_model.safetensors");
      damage.happens(out + "/checkpoint-6");
      const ProgramResult resumed = run_ranks(ranks, with_checkpoints(out, {"--resume"}));
      expect_done(resumed);
      for (const std::string& told :
           {out + "/checkpoint-6" + damage.named, out + "/checkpoint-4"}) {
        EXPECT_NE(resumed.err.find(told), std::string::npos) << damage.what << "\n" << resumed.err;
      }
      EXPECT_EQ(adapter(out), adapter(whole)) << damage.what;
      EXPECT_EQ(losses(out, "step"), losses(whole, "step")) << damage.what;
      for (const char* const file : {"/checkpoint-6/state.safetensors", "/checkpoint-6/state.json"})
        EXPECT_EQ(read_text(out + file), read_text(whole + file)) << damage.what;
    }
  }
}

TEST(SftCheckpoints, EachHasTheAdapterOfThatStep) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string four = directory.path_of("four");
  const Arguments constant = {"--schedule", "constant"};
  expect_done(run_ranks(2, with_checkpoints(out, constant)));
  expect_done(run_moesaic(sft(four, joined(constant, {"--max-steps", "4"}))));
  EXPECT_EQ(adapter(out + "/checkpoint-4"), adapter(four));
  EXPECT_EQ(adapter(out + "/checkpoint-6"), adapter(out));
  EXPECT_NE(adapter(out + "/checkpoint-2"), adapter(four));
  EXPECT_EQ(read_text(out + "/checkpoint-4/adapter_config.json"),
            read_text(four + "/adapter_config.json"));
  const auto text = [&](const std::string& lora) {
    const ProgramResult result = run_moesaic(
        {"generate", "-m", kDemo, "--lora", lora, "-p", "In the", "-n", "24", "--temp", "0"});
    expect_done(result);
    return result.out;
  };
  EXPECT_EQ(text(out + "/checkpoint-4"), text(four));
  expect_done(run_moesaic(sft(directory.path_of("on"), {"--lora", out + "/checkpoint-4"})));
}

/// A run that is worse from step to step, soon.
Arguments worsening(const std::string& out, const Arguments& more) {
  return sft(out,
             joined({"--schedule", "constant", "--lr", "0.05", "--eval-split", "8", "--eval-every",
                     "1", "--save-every", "1", "--keep", "1", "--log-level", "info"},
                    more));
}

/// Of the evaluations after steps that count, the last of the lowest loss.
std::int64_t best_step(const std::string& out, const std::function<bool(std::int64_t)>& counts) {
  double lowest = HUGE_VAL;
  std::int64_t best = -1;
  for (const Json& line : events(out, "eval")) {
    const std::int64_t step = line.at("step").as_int();
    const double loss = line.at("loss").as_double();
    if (!counts(step) || loss > lowest) continue;
    lowest = loss;
    best = step;
  }
  return best;
}

TEST(SftCheckpoints, TheOneOfTheLowestHeldOutLossStaysAndIsTold) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const ProgramResult first = run_ranks(2, worsening(out, {"--max-steps", "4"}));
  expect_done(first);
  const std::int64_t best = best_step(out, [](std::int64_t) { return true; });
  ASSERT_GT(best, 0);
  ASSERT_LT(best, 4);
  const std::string place = fmt::format("checkpoint-{}", best);
  EXPECT_EQ(checkpoints(out), (std::set<std::string>{place, "checkpoint-4"}));
  const std::string told =
      fmt::format("after step {}, whose adapter is in {}/{}\n", best, out, place);
  EXPECT_NE(first.err.find(told), std::string::npos) << first.err;
  const ProgramResult longer = run_moesaic(worsening(out, {"--max-steps", "6", "--resume"}));
  expect_done(longer);
  EXPECT_EQ(checkpoints(out), (std::set<std::string>{place, "checkpoint-6"}));
  EXPECT_NE(longer.err.find(told), std::string::npos) << longer.err;
  fs::remove_all(out + "/" + place);
  std::string metrics = read_text(out + "/metrics.jsonl");
  metrics += R"({"event": "eval", "step": 6, "loss": null, "digest": "of others"})"
             "\n";
  write_text(out + "/metrics.jsonl", metrics);
  const ProgramResult again = run_moesaic(worsening(out, {"--max-steps", "6", "--resume"}));
  expect_done(again);
  EXPECT_NE(again.err.find("step 6 is the last and done"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("was lowest"), std::string::npos) << "the last is the only one of these";
}

TEST(SftCheckpoints, TheBestOfThoseThatAreSavedStays) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(worsening(out, {"--max-steps", "5", "--save-every", "2"})));
  const std::int64_t best =
      best_step(out, [](std::int64_t step) { return step > 0 && (step % 2 == 0 || step == 5); });
  const std::set<std::string> kept = {fmt::format("checkpoint-{}", best), "checkpoint-5"};
  EXPECT_EQ(checkpoints(out), kept);
  // Without held-out data nobody says that it is worse.
  expect_done(run_moesaic(sft(out, {"--schedule", "constant", "--lr", "0.05", "--eval-split", "8",
                                    "--keep", "1", "--max-steps", "5", "--resume"})));
  EXPECT_EQ(checkpoints(out), kept);
}

TEST(SftCheckpoints, AnAdapterIsLookedForInThem) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out, {"--max-steps", "1"})));
  fs::remove(out + "/adapter_config.json");
  expect_failure(run_moesaic({"generate", "-m", kDemo, "--lora", out, "-p", "In", "-n", "1"}), 3,
                 {out + ": has no adapter itself; " + out + "/checkpoint-1 has one"});
  for (const char* const later : {"/checkpoint-9", "/checkpoint-10"}) {
    fs::copy(out + "/checkpoint-1", out + later, fs::copy_options::recursive);
  }
  expect_failure(run_moesaic({"generate", "-m", kDemo, "--lora", out, "-p", "In", "-n", "1"}), 3,
                 {out + "/checkpoint-10 has one"});
}

TEST(SftCheckpoints, OnesWithoutAnAdapterAreWhole) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_checkpoints(out)));
  const std::string before = adapter(out);
  fs::remove_all(out + "/checkpoint-6");
  fs::remove(out + "/checkpoint-4/adapter_model.safetensors");
  fs::remove(out + "/checkpoint-4/adapter_config.json");
  const ProgramResult resumed = run_moesaic(with_checkpoints(out, {"--resume"}));
  expect_done(resumed);
  EXPECT_EQ(resumed.err.find("damaged"), std::string::npos) << resumed.err;
  EXPECT_EQ(adapter(out), before);
}

TEST(SftCheckpoints, AnAdapterOfAnotherProgramIsNotTaken) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_checkpoints(out, {"--keep", "1"})));
  fs::create_directory(out + "/checkpoint-4");
  const std::string file = out + "/checkpoint-4/adapter_model.safetensors";
  write_text(file, "another's");
  for (const char* const how : {"--resume", "--overwrite"}) {
    expect_failure(run_moesaic(with_checkpoints(out, {how})), 2,
                   {out + "/checkpoint-4", "not made by moesaic sft"});
  }
  EXPECT_EQ(read_text(file), "another's");
}

TEST(SftCheckpoints, WhatOthersHavePutIntoADamagedOneStaysInTheOneThatTakesItsPlace) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_checkpoints(out)));
  const std::string values = read_text(out + "/checkpoint-6/state.safetensors");
  write_text(out + "/checkpoint-6/notes.txt", "mine");
  fs::resize_file(out + "/checkpoint-6/state.safetensors", 20);
  expect_done(run_moesaic(with_checkpoints(out, {"--resume"})));
  EXPECT_EQ(read_text(out + "/checkpoint-6/notes.txt"), "mine");
  EXPECT_EQ(read_text(out + "/checkpoint-6/state.safetensors"), values);
  EXPECT_EQ(checkpoints(out),
            (std::set<std::string>{"checkpoint-2", "checkpoint-4", "checkpoint-6"}));
}

TEST(SftCheckpoints, WhereAllAreDamagedNothingBeginsAnewUnasked) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_checkpoints(out)));
  for (const std::string& name : checkpoints(out)) fs::remove(out + "/" + name + "/state.json");
  for (const int ranks : {1, 2}) {
    expect_failure(run_ranks(ranks, with_checkpoints(out, {"--resume"})), 3,
                   {out + "/checkpoint-6/state.json", "no checkpoint", "--overwrite"});
  }
  EXPECT_EQ(checkpoints(out).size(), 3U);
}

TEST(SftCheckpoints, ARunThatIsOverKeepsFewerWhenItIsAskedTo) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_checkpoints(out)));
  EXPECT_EQ(checkpoints(out).size(), 3U);
  const std::string before = adapter(out);
  expect_done(run_ranks(2, with_checkpoints(out, {"--resume", "--keep", "1"})));
  EXPECT_EQ(checkpoints(out), std::set<std::string>{"checkpoint-6"});
  EXPECT_EQ(adapter(out), before);
}

}  // namespace
}  // namespace moesaic::test
