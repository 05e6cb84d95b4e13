// A run of moesaic sft goes on wherever it was killed, and with its own options alone.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "tests/launch/sft_program.h"
#include "tests/support/model_copies.h"

namespace moesaic::test {
namespace {

/// tests/run.sh --all sets more.
int wanted_kills() {
  const char* wanted = std::getenv("TEST_KILLS");
  return wanted != nullptr ? std::stoi(wanted) : 4;
}

// Of one rank, or of the mpirun of two: what they leave is taken up by another number of them.
TEST(SftKilled, ARunThatIsKilledAtAnyMomentsGoesOnToTheSameBytesOnAnyRanks) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path_of("whole");
  const std::string parts = directory.path_of("parts");
  const Arguments resumed = sft(parts, {"--resume", "--save-every", "1"});
  std::array<double, 2> seconds{};
  for (const int ranks : {2, 1}) {
    const ProgramResult reference =
        run_ranks(ranks, sft(whole, {"--save-every", "1", "--overwrite"}));
    expect_done(reference);
    seconds[static_cast<std::size_t>(ranks) - 1] = reference.seconds;
  }
  std::mt19937 random(20);
  for (int kill = 0; kill < wanted_kills(); ++kill) {
    const int ranks = 2 - kill % 2;
    std::uniform_real_distribution<double> moment(0, seconds[static_cast<std::size_t>(ranks) - 1]);
    RunningProgram program(ranks == 1 ? moesaic_command(resumed) : ranks_command(ranks, resumed));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
    program.send(SIGKILL);
    const bool is_done = program.wait().exit_code == 0;  // it was faster
    if (std::filesystem::exists(parts)) wait_until_nobody_writes(parts);
    if (!is_done) continue;
    ASSERT_EQ(adapter(parts), adapter(whole)) << kill;
    std::filesystem::remove_all(parts);
  }
  expect_done(run_ranks(3, resumed));
  EXPECT_EQ(adapter(parts), adapter(whole));
  EXPECT_EQ(losses(parts, "step"), losses(whole, "step"));
}

/// An option that decides the result: what a run had, and another value.
struct Change {
  std::string option;
  std::string had;    // empty: it was not given
  std::string wants;  // empty: a flag
  Arguments with{};   // of both runs
};

class SftResume : public testing::Test {
 protected:
  SftResume() {
    copy_model("demo-model", model_);
    damage_one_weight();
    write_text(data_, lines_with("In the beginning God created the heaven and the earth."));
    write_text(other_data_, lines_with("And the earth was without form, and void."));
    write_text(turns_,
               R"({"messages": [{"role": "user", "content": "a"}, )"
               R"({"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, )"
               R"({"role": "assistant", "content": "d"}]})");
    write_text(template_, "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  }

  /// Lines that are completions and texts, too: a long one and a short one.
  static std::string lines_with(const std::string& text) {
    std::string lines;
    for (const std::string& whole : {text, std::string("And God")}) {
      lines += R"({"prompt": "And God", "completion": " said", "text": ")" + whole + "\"}\n";
    }
    return lines;
  }
  void damage_one_weight() const {
    std::string weights = read_text(model_ + "/model.safetensors");
    weights[400'000] = static_cast<char>(weights[400'000] ^ 1);
    write_text(model_ + "/model.safetensors", weights);
  }
  static Arguments given(const Change& change, const std::string& value, bool is_given) {
    if (!is_given) return change.with;
    Arguments arguments = joined(change.with, {"--" + change.option});
    if (!value.empty()) arguments.push_back(value);
    return arguments;
  }
  /// Of the texts of data_, unless `more` names other data or another format.
  [[nodiscard]] Arguments run(Arguments more) const {
    std::string data = data_;
    const auto named = std::ranges::find(more, "--data");
    if (named != more.end()) {
      data = *(named + 1);
      more.erase(named, named + 2);
    }
    return sft(out_, joined({"--max-steps", "1", "--data-format", "text"}, more), data);
  }
  void expect_refused(const Change& change) const {
    SCOPED_TRACE(change.option);
    expect_done(
        run_moesaic(run(joined(given(change, change.had, !change.had.empty()), {"--overwrite"}))));
    expect_failure(run_moesaic(run(joined(given(change, change.wants, true), {"--resume"}))), 2,
                   {out_ + "/checkpoint-1: was made with", "--" + change.option, "--overwrite"});
  }

  TemporaryDirectory directory_;
  std::string out_ = directory_.path_of("out");
  std::string model_ = directory_.path_of("model");
  std::string data_ = directory_.path_of("data.jsonl");
  std::string other_data_ = directory_.path_of("other.jsonl");
  std::string turns_ = directory_.path_of("turns.jsonl");
  std::string template_ = directory_.path_of("template.jinja");
};

TEST_F(SftResume, AnotherValueOfAnOptionOfTheOptimizerOrOfNumbersIsRefusedByItsName) {
  expect_done(run_moesaic(run({})));  // which all others find, as they change nothing
  const std::vector<std::pair<std::string, std::string>> changes = {{"precision", "fp32"},
                                                                    {"expert-format", "int8"},
                                                                    {"dense-format", "int8"},
                                                                    {"head-format", "int8"},
                                                                    {"int4-activations", "int8"},
                                                                    {"nvfp4-activations", "nvfp4"},
                                                                    {"numerics", "portable"},
                                                                    {"seed", "7"},
                                                                    {"no-shuffle", ""},
                                                                    {"lr", "0.001"},
                                                                    {"schedule", "linear"},
                                                                    {"warmup-steps", "1"},
                                                                    {"beta1", "0.8"},
                                                                    {"beta2", "0.99"},
                                                                    {"adam-eps", "1e-6"},
                                                                    {"weight-decay", "0.1"},
                                                                    {"clip", "0.5"},
                                                                    {"epochs", "2"},
                                                                    {"max-steps", "2"},
                                                                    {"global-batch-size", "2"},
                                                                    {"lora-rank", "2"},
                                                                    {"lora-alpha", "8"},
                                                                    {"rslora", ""},
                                                                    {"lora-dropout", "0.1"},
                                                                    {"lora-targets", "attention"},
                                                                    {"data-format", "completion"},
                                                                    {"data", other_data_},
                                                                    {"model", model_},
                                                                    {"eval-split", "1"}};
  for (const auto& [option, value] : changes) {
    SCOPED_TRACE(option);
    Arguments more = {"--resume", "--" + option};
    if (!value.empty()) more.push_back(value);
    expect_failure(run_moesaic(run(more)), 2,
                   {out_ + "/checkpoint-1: was made with", "--" + option, "--overwrite"});
  }
  const ProgramResult same =
      run_moesaic(run({"--resume", "--threads", "2", "--recompute", "always", "--batch-size", "64",
                       "--keep", "5", "--on-nonfinite", "skip"}));
  EXPECT_EQ(same.exit_code, 0) << same.text();
}

TEST_F(SftResume, ARunOfConstantRateMayBecomeLonger) {
  const auto steps = [&](const std::string& out, const std::string& count, const Arguments& more) {
    return sft(out,
               joined({"--schedule", "constant", "--warmup-steps", "2", "--max-steps", count,
                       "--data-format", "text"},
                      more),
               data_);
  };
  const std::string whole = directory_.path_of("whole");
  expect_done(run_moesaic(steps(whole, "5", {})));
  expect_done(run_moesaic(steps(out_, "3", {})));
  expect_done(run_ranks(2, steps(out_, "5", {"--resume"})));
  EXPECT_EQ(adapter(out_), adapter(whole));
  EXPECT_EQ(losses(out_, "step"), losses(whole, "step"));
  expect_failure(run_moesaic(steps(out_, "4", {"--resume"})), 2,
                 {out_ + "/checkpoint-5: has more steps than the 4 of the run"});
  expect_failure(run_moesaic(steps(out_, "9", {"--resume", "--clip", "2"})), 2,
                 {"was made with --clip 1, not 2;"});
}

TEST_F(SftResume, ARunThatGoesOnHasNoAdapterOfItsEarlierPart) {
  const auto steps = [&](const std::string& count, const Arguments& more) {
    const Arguments all = {"--schedule", "constant", "--data-format", "text"};
    return with_steps(count, sft(out_, joined(all, more), data_));
  };
  expect_done(run_moesaic(steps("2", {})));
  const std::string early = adapter(out_);
  const auto count_starts = [&] {  // the last line may be under way
    const std::string path = out_ + "/metrics.jsonl";
    const std::string text = std::filesystem::exists(path) ? read_text(path) : "";
    int count = 0;
    for (std::size_t at = 0; (at = text.find("\"start\"", at)) != text.npos; ++at) ++count;
    return count;
  };
  expect_failure(run_moesaic(steps("100000", {"--resume", "--clip", "2"})), 2, {"--clip"});
  EXPECT_EQ(adapter(out_), early) << "of a run that is refused nothing is removed";
  for (const char* const how : {"--resume", "--overwrite"}) {
    RunningProgram program(ranks_command(3, steps("100000", {how})));
    const auto is_there = [&](const char* file) { return std::filesystem::exists(out_ + file); };
    const int starts = std::string_view(how) == "--resume" ? 2 : 1;
    ASSERT_TRUE(program.wait_until([&] { return count_starts() == starts; })) << program.err();
    EXPECT_FALSE(is_there("/adapter_model.safetensors")) << how;
    EXPECT_FALSE(is_there("/adapter_config.json")) << how;
    write_text(out_ + "/stop", "");
    EXPECT_EQ(program.wait().exit_code, 6) << how;
    const std::string newest =
        out_ + "/checkpoint-" + std::to_string(events(out_, "end").back().at("step").as_int());
    EXPECT_EQ(adapter(out_), adapter(newest)) << how;
    EXPECT_NE(adapter(out_), early) << how;
    std::filesystem::remove(out_ + "/stop");
  }
}

TEST_F(SftResume, AnAdapterThatNoCheckpointHasIsNotRemoved) {
  const std::string checkpoint = out_ + "/checkpoint-2";
  const std::string values = checkpoint + "/adapter_model.safetensors";
  const std::vector<std::function<void()>> ways_to_lose_it = {
      [&] { std::filesystem::remove_all(checkpoint); }, [&] { std::filesystem::remove(values); },
      [&] {
        std::string other = read_text(values);
        other.back() ^= 1;
        write_text(values, other);
      }};
  for (std::size_t i = 0; i < ways_to_lose_it.size(); ++i) {
    const auto steps = [&](const std::string& count, const std::string& how) {
      return with_steps(count, sft(out_, {how, "--schedule", "constant"}, data_));
    };
    expect_done(run_moesaic(steps("2", "--overwrite")));
    const std::string early = adapter(out_);
    ways_to_lose_it[i]();
    RunningProgram program(moesaic_command(steps("100000", "--resume")));
    ASSERT_TRUE(program.wait_until([&] {
      return program.err().find("the adapter in it is that of an earlier run") != std::string::npos;
    })) << i
        << program.err();
    program.send(SIGKILL);
    EXPECT_NE(program.wait().exit_code, 0);
    EXPECT_EQ(adapter(out_), early) << i;
  }
}

TEST_F(SftResume, AnotherValueOfAnOptionThatDecidesWithOthersIsRefusedByItsName) {
  const std::string first = directory_.path_of("first");
  const std::string second = directory_.path_of("second");
  expect_done(run_moesaic(sft(first, {"--max-steps", "1", "--seed", "1"})));
  expect_done(run_moesaic(sft(second, {"--max-steps", "1", "--seed", "2"})));
  const Arguments turns = {"--data", turns_, "--data-format", "messages"};
  for (const Change& change : std::vector<Change>{
           {.option = "ctx-size", .had = "10", .wants = "8", .with = {"--too-long", "cut"}},
           {.option = "too-long", .had = "cut", .wants = "drop", .with = {"--ctx-size", "10"}},
           {.option = "train-on", .had = "all", .wants = "last", .with = turns},
           {.option = "chat-template", .had = "", .wants = template_, .with = turns},
           {.option = "lora", .had = first, .wants = second}}) {
    expect_refused(change);
  }
}

TEST_F(SftResume, OptionsThatAnAdapterDecidesAreNotBlamedForOtherData) {
  const std::string adapter = directory_.path_of("adapter");
  const Arguments brief = {"--max-steps", "1", "--data-format", "text"};
  expect_done(run_moesaic(sft(adapter, brief, data_)));
  Arguments on = sft(out_, joined(brief, {"--lora", adapter}), data_);
  expect_done(run_moesaic(on));
  const auto rank = std::ranges::find(on, "--lora-rank");
  ASSERT_NE(rank, on.end());
  on.erase(rank, rank + 2);
  write_text(data_, lines_with("And the earth was without form, and void."));
  expect_failure(run_moesaic(joined(on, {"--resume"})), 2,
                 {out_ + "/checkpoint-1: was made from other data than " + data_ + " gives now"});
}

TEST_F(SftResume, ARunGoesOnWhereTheAdapterThatItBeganWithIsGone) {
  const std::string first = directory_.path_of("first");
  const std::string never = directory_.path_of("never");
  const auto steps = [&](const std::string& out, const std::string& count, const Arguments& more) {
    const Arguments all = {"--schedule", "constant", "--save-every",  "1",
                           "--keep",     "2",        "--data-format", "text"};
    return with_steps(count, sft(out, joined(all, more), data_));
  };
  expect_done(run_moesaic(steps(first, "2", {"--lora-dropout", "0.2"})));
  const std::string whole = directory_.path_of("whole");
  expect_done(run_moesaic(steps(whole, "4", {"--lora", first})));
  expect_done(run_moesaic(steps(out_, "2", {"--lora", first})));
  std::filesystem::rename(first, directory_.path_of("elsewhere"));

  const auto on = [&](const std::string& out, const std::string& count, const std::string& lora) {
    return steps(out, count, {"--lora", lora, "--resume"});
  };
  expect_failure(run_moesaic(on(out_, "4", never)), 2,
                 {out_ + "/checkpoint-2: was made with --lora " + first + ", not " + never});
  expect_done(run_ranks(3, on(out_, "3", first)));
  // Where the newest checkpoint has lost its adapter, and not its state.
  write_text(out_ + "/checkpoint-3/adapter_model.safetensors", "cut");
  expect_done(run_ranks(1, on(out_, "4", first)));
  EXPECT_EQ(adapter(out_), adapter(whole));
  EXPECT_EQ(read_text(out_ + "/adapter_config.json"), read_text(whole + "/adapter_config.json"));
  EXPECT_EQ(losses(out_, "step"), losses(whole, "step"));
  std::filesystem::remove(out_ + "/options.ini");  // then nobody knows what its name was
  expect_failure(run_moesaic(on(out_, "5", never)), 2,
                 {"was made from another adapter than " + never});
}

TEST_F(SftResume, ARunThatBeganWithoutAnAdapterDoesNotGoOnWithOneThatIsNotThere) {
  const std::string never = directory_.path_of("never");
  expect_done(run_moesaic(run({})));
  const Arguments on = run({"--lora", never, "--resume"});
  expect_failure(run_moesaic(on), 2, {"was made with --lora \"\", not " + never});
  std::filesystem::remove(out_ + "/options.ini");
  expect_failure(run_moesaic(on), 2, {"was made from another adapter than " + never});
}

TEST_F(SftResume, AnotherAdapterInThePlaceOfTheOneThatARunBeganWithIsRefused) {
  const std::string first = directory_.path_of("first");
  expect_done(run_moesaic(sft(first, {"--max-steps", "1"})));
  expect_done(run_moesaic(run({"--lora", first})));
  expect_done(run_moesaic(sft(first, {"--max-steps", "1", "--seed", "7", "--overwrite"})));
  expect_failure(run_moesaic(run({"--lora", first, "--resume"})), 2,
                 {out_ + "/checkpoint-1: was made from another adapter than " + first});
}

TEST_F(SftResume, OtherHeldOutDataAreEvaluatedWhereTheRunIsDone) {
  const auto evaluate = [&](const std::string& data) {
    expect_done(run_moesaic(run({"--resume", "--eval-data", data})));
    return events(out_, "eval").size();
  };
  expect_done(run_moesaic(run({})));
  EXPECT_EQ(evaluate(data_), 1U);
  EXPECT_EQ(evaluate(data_), 1U);
  EXPECT_EQ(evaluate(other_data_), 2U);
  const std::vector<Json> evals = events(out_, "eval");
  EXPECT_NE(evals[0].at("digest").as_string(), evals[1].at("digest").as_string());
  EXPECT_NE(evals[0].at("loss").as_double(), evals[1].at("loss").as_double());
}

}  // namespace
}  // namespace moesaic::test
