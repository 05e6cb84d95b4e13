// moesaic sft, seen from outside: the same adapter on any ranks, after any interruption, and
// refusals.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/launch/broken_models.h"
#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

TEST(Sft, TheAdapterIsTheSameBytesOnAnyRanks) {
  const TemporaryDirectory directory;
  const std::string alone = directory.path_of("alone");
  expect_done(run_moesaic(sft(alone)));
  const std::string placed = directory.path_of("load.json");  // each layer in another way
  const std::string other = "[9,8,7,6,5,4,3,2,1,1,1,1,1,1,1,1],[1,20,1,2,1,1,1,1,9,9,9,9,9,9,9,9]";
  write_text(placed, "{\"experts_per_token\": 4, \"rows\": [" + other + "," + other +
                         ",[1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2]]}");
  const std::vector<std::pair<int, Arguments>> others = {
      {2, {"--placement", placed}},
      {3, {"--batch-size", "64", "--placement", "round_robin"}},
      {4, {"--expert-replicas", "2", "--ranks-per-node", "1"}},
      {2, {"--recompute", "always"}}};
  for (const auto& [ranks, more] : others) {
    const std::string out = directory.path_of("out" + std::to_string(ranks));
    expect_done(run_ranks(ranks, sft(out, joined(more, {"--overwrite"}))));
    EXPECT_EQ(adapter(out), adapter(alone)) << ranks;
    EXPECT_EQ(events(out, "step").back().at("loss").as_double(),
              events(alone, "step").back().at("loss").as_double());
  }
}

TEST(Sft, HeldOutLossFallsAndMetricsTellOfIt) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(
      run_ranks(2, sft(out, {"--eval-split", "12", "--eval-every", "8", "--max-steps", "16"})));
  const std::vector<Json> evals = events(out, "eval");
  ASSERT_EQ(evals.size(), 3U);
  EXPECT_LT(evals.back().at("loss").as_double(), evals.front().at("loss").as_double() - 0.8);
  EXPECT_EQ(events(out, "step").size(), 16U);
  EXPECT_EQ(events(out, "end").at(0).at("reason").as_string(), "done");
  EXPECT_EQ(events(out, "start").at(0).at("trainable").at("attention").as_int(), 28160);
  EXPECT_NE(read_text(out + "/loss.svg").find("held out"), std::string::npos);
  EXPECT_NE(read_text(out + "/options.ini").find("lora-rank = 4"), std::string::npos);
}

TEST(Sft, ARunThatWasStoppedGoesOnToTheSameBytes) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path_of("whole");
  const std::string parts = directory.path_of("parts");
  const auto long_sft = [](const std::string& out, const Arguments& more = {}) {
    return with_steps("20", sft(out, more));  // nobody is through when he is to stop
  };
  expect_done(run_moesaic(long_sft(whole)));
  const auto steps_done = [&] {
    return std::filesystem::exists(parts + "/metrics.jsonl") ? events(parts, "step").size() : 0;
  };
  {
    RunningProgram program(ranks_command(2, long_sft(parts, {"--save-every", "1"})));
    ASSERT_TRUE(program.wait_until([&] { return steps_done() >= 2; }));
    program.send(SIGKILL);
    (void)program.wait();
    wait_until_nobody_writes(parts);
  }
  write_text(parts + "/stop", "");
  const ProgramResult stopped = run_ranks(3, long_sft(parts, {"--resume", "--save-every", "1"}));
  EXPECT_EQ(stopped.exit_code, 6) << stopped.text();
  EXPECT_FALSE(std::filesystem::exists(parts + "/stop"));
  expect_done(run_moesaic(long_sft(parts, {"--resume"})));
  EXPECT_EQ(adapter(parts), adapter(whole));
  EXPECT_EQ(events(parts, "step").size(), 20U);
}

TEST(Sft, SignalsEndARunAfterAStep) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path_of("whole");
  const auto with_evaluations = [](const std::string& out, const Arguments& more = {}) {
    return with_steps(
        "20",
        sft(out, joined({"--eval-split", "6", "--eval-every", "1", "--save-every", "7"}, more)));
  };
  expect_done(run_moesaic(with_evaluations(whole)));
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string parts = directory.path_of("parts" + std::to_string(signal));
    {
      RunningProgram program(moesaic_command(with_evaluations(parts)));
      ASSERT_TRUE(program.wait_until([&] {
        return std::filesystem::exists(parts + "/metrics.jsonl") && !events(parts, "step").empty();
      }));
      program.send(signal);
      const ProgramResult stopped = program.wait();
      ASSERT_EQ(stopped.exit_code, 6) << stopped.text();
      EXPECT_NE(stopped.text().find("--resume goes on"), std::string::npos) << stopped.text();
    }
    EXPECT_EQ(events(parts, "end").back().at("reason").as_string(), "interrupted");
    expect_done(run_ranks(2, with_evaluations(parts, {"--resume"})));
    EXPECT_EQ(adapter(parts), adapter(whole)) << signal;
    EXPECT_EQ(losses(parts, "step"), losses(whole, "step")) << signal;
    EXPECT_EQ(losses(parts, "eval"), losses(whole, "eval")) << signal;
  }
}

TEST(Sft, AnEvaluationThatIsInterruptedIsDoneAgain) {
  const TemporaryDirectory directory;
  const std::string held_out = directory.path_of("held-out.jsonl");
  std::string many;
  for (int copy = 0; copy < 4; ++copy) many += read_text(kConversations);
  write_text(held_out, many);
  const auto evaluated = [&](const std::string& out) {
    return sft(out, {"--eval-data", held_out, "--batch-size", "128", "--resume"});
  };
  const std::string whole = directory.path_of("whole");
  const std::string parts = directory.path_of("parts");
  expect_done(run_moesaic(evaluated(whole)));
  {
    RunningProgram program(moesaic_command(evaluated(parts)));
    ASSERT_TRUE(  // the evaluation before the first step begins
        program.wait_until([&] { return std::filesystem::exists(parts + "/metrics.jsonl"); }));
    program.send(SIGTERM);
    const ProgramResult stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 6) << stopped.text();
  }
  expect_done(run_ranks(2, evaluated(parts)));
  EXPECT_EQ(adapter(parts), adapter(whole));
  EXPECT_EQ(losses(parts, "eval"), losses(whole, "eval"));
}

TEST(Sft, TimeThatIsOverEndsARun) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments endless =
      with_steps("100000", sft(out, {"--schedule", "constant", "--max-time", "1s", "--resume"}));
  std::size_t steps = 0;
  for (int run = 0; run < 40 && steps < 3; ++run) {  // however slow the machine is
    const ProgramResult stopped = run_ranks(1 + run % 2, endless);
    ASSERT_EQ(stopped.exit_code, 6) << stopped.text();
    steps = events(out, "step").size();
  }
  const std::string whole = directory.path_of("whole");
  expect_done(
      run_moesaic(with_steps(std::to_string(steps), sft(whole, {"--schedule", "constant"}))));
  EXPECT_EQ(losses(out, "step"), losses(whole, "step"));
}

TEST(Sft, DropoutLeavesTheSameOutOnAnyRanksAndAfterAStop) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path_of("whole");
  const std::string parts = directory.path_of("parts");
  const Arguments dropout = {"--lora-dropout", "0.25"};
  expect_done(run_moesaic(sft(whole, dropout)));
  const Arguments resumed = joined(dropout, {"--resume", "--save-every", "1"});
  const auto steps_done = [&] {
    return std::filesystem::exists(parts + "/metrics.jsonl") ? events(parts, "step").size() : 0;
  };
  {
    RunningProgram program(ranks_command(2, sft(parts, resumed)));
    ASSERT_TRUE(program.wait_until([&] { return steps_done() >= 2; }));
    program.send(SIGKILL);
    (void)program.wait();
    wait_until_nobody_writes(parts);
  }
  expect_failure(run_moesaic(sft(parts, {"--resume"})), 2,
                 {parts, "made with --lora-dropout 0.25, not 0;", "--overwrite"});
  expect_done(run_ranks(3, sft(parts, resumed)));
  EXPECT_EQ(adapter(parts), adapter(whole));
  const Json config = Json::parse(read_text(parts + "/adapter_config.json"), "adapter_config.json");
  EXPECT_EQ(config.at("lora_dropout").as_double(), 0.25);
  // A run that goes on from an adapter has its dropout, unless it says another.
  const std::string more = directory.path_of("more");
  expect_done(run_moesaic(sft(more, {"--lora", whole, "--max-steps", "1"})));
  EXPECT_NE(read_text(more + "/adapter_config.json").find("\"lora_dropout\": 0.25"),
            std::string::npos);
  const std::string options = read_text(more + "/options.ini");
  const std::size_t line = options.find("\n# lora-dropout = ");
  ASSERT_NE(line, std::string::npos) << options;
  const std::string shown = options.substr(line + 1, options.find('\n', line + 1) - line - 1);
  EXPECT_TRUE(shown.ends_with("# of the adapter")) << shown;
  EXPECT_EQ(shown.find('0'), std::string::npos) << "no default: " << shown;
  // So does what its options.ini describes.
  const std::string again = directory.path_of("again");
  expect_done(run_moesaic({"sft", "--config", more + "/options.ini", "-o", again}));
  EXPECT_EQ(adapter(again), adapter(more));
  const std::string without = directory.path_of("without");
  expect_done(
      run_moesaic(sft(without, {"--lora", whole, "--lora-dropout", "0", "--max-steps", "1"})));
  EXPECT_NE(adapter(without), adapter(more));
}

TEST(Sft, WrongRequestsAreRefusedBeforeAnythingIsWritten) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, "{\"text\": \"In the beginning\"}\n{\"text\": 5}\n");
  expect_failure(run_ranks(2, sft(out, {}, data)), 3, {"data.jsonl line 2", "text"});
  expect_failure(run_moesaic(sft(out, {}, directory.path_of("none"))), 3, {"none"});
  expect_failure(run_moesaic(sft(out, {"--lora-targets", "shared"})), 2, {"shared"});
  expect_failure(run_moesaic(sft(out, {"--ctx-size", "20"})), 3, {"line 1", "--too-long"});
  expect_failure(run_moesaic(sft(out, {"--eval-split", "500"})), 2, {"--eval-split"});
  expect_failure(run_moesaic(sft(out, {"--eval-split", "1.5"})), 2, {"--eval-split 1.5"});
  expect_failure(run_ranks(2, sft(out, {"--eval-data", "-"}, "-")), 2,
                 {"--data - and --eval-data -", "only one of them"});
  expect_failure(run_moesaic(sft(out, {"--eval-data", data, "--eval-split", "3"})), 2,
                 {"--eval-data and --eval-split"});
  expect_failure(run_moesaic(sft(out, {"--lora-alpha", "0"})), 2, {"--lora-alpha 0"});
  expect_failure(run_ranks(2, sft(out, {"--epochs", "0", "--max-steps", "0"})), 2, {"--epochs 0"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Sft, OptionsWithoutEffectAreToldOf) {
  const TemporaryDirectory directory;
  const ProgramResult result = run_moesaic(sft(
      directory.path_of("out"), {"--eval-every", "2", "--warmup-steps", "2", "--max-steps", "2"}));
  expect_done(result);
  EXPECT_NE(result.err.find("--warmup-steps 2: the run ends after step 2"), std::string::npos)
      << result.text();
  EXPECT_NE(result.err.find("--eval-every has no effect"), std::string::npos) << result.text();
  const ProgramResult still = run_moesaic(sft(directory.path_of("still"), {"--lr", "0"}));
  expect_done(still);
  EXPECT_NE(still.err.find("--lr 0: steps change nothing"), std::string::npos) << still.text();
}

TEST(Sft, SamplesAreShownAndWritten) {
  const TemporaryDirectory directory;
  const std::string samples = directory.path_of("samples.jsonl");
  const ProgramResult shown =
      run_ranks(2, sft("", {"--show-sample", "1", "--samples-out", samples}));
  expect_done(shown);
  EXPECT_NE(shown.out.find("<|im_start|>assistant\n>>that there was a famine"), std::string::npos)
      << shown.text();
  EXPECT_EQ(lines_of(read_text(samples)).size(), 85U);
  const std::string from_text = directory.path_of("from_text");
  const std::string from_tokens = directory.path_of("from_tokens");
  write_text(samples, "\xEF\xBB\xBF" + read_text(samples));  // which is no part of the first line
  expect_done(run_moesaic(sft(from_text, {"--max-steps", "2"})));
  expect_done(run_moesaic(sft(from_tokens, {"--max-steps", "2"}, samples)));
  EXPECT_EQ(adapter(from_tokens), adapter(from_text));
}

TEST(Sft, SamplesGoToTheStandardOutputOrSayWhyNot) {
  const TemporaryDirectory directory;
  const std::string samples = directory.path_of("samples.jsonl");
  expect_done(run_moesaic(sft("", {"--samples-out", samples})));
  const ProgramResult piped = run_ranks(2, sft("", {"--samples-out", "-"}));
  expect_done(piped);
  EXPECT_EQ(piped.out, read_text(samples));
  EXPECT_FALSE(std::filesystem::exists("-"));
  expect_failure(run_moesaic(sft("", {"--samples-out", "-", "--show-sample", "1"})), 2,
                 {"--samples-out - and --show-sample"});
  const std::string nowhere = directory.path_of("none/samples.jsonl");
  expect_failure(run_moesaic(sft("", {"--samples-out", nowhere})), 4,
                 {nowhere + ": cannot be written: No such file or directory"});
  expect_failure(run_moesaic(sft("", {"--samples-out", "/dev/null"})), 4,
                 {"/dev/null: cannot be written: not a regular file"});
}

TEST(Sft, SamplesAreWrittenInTheOrderOfTheFileAlsoThoseToHoldOut) {
  const TemporaryDirectory directory;
  const std::string data = directory.path_of("data.jsonl");
  const std::string samples = directory.path_of("samples.jsonl");
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    const std::string ids = fmt::format("[{}, {}]", 10 + i, 30 + i);
    lines += fmt::format("{{\"input_ids\": {}, \"labels\": {}}}\n", ids, ids);
  }
  const std::string untrained = "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n";
  write_text(data, untrained + lines);
  const ProgramResult result = run_ranks(
      2, sft("", {"--eval-split", "0.25", "--samples-out", samples, "--log-level", "info"}, data));
  expect_done(result);
  EXPECT_EQ(read_text(samples), lines);
  EXPECT_NE(result.err.find("12 samples, 24 tokens, 12 of them trained; "
                            "1 without a trained token left out"),
            std::string::npos)
      << result.text();
}

TEST(Sft, HeldOutSamplesThatAreLeftOutAreCounted) {
  const TemporaryDirectory directory;
  const std::string held_out = directory.path_of("held_out.jsonl");
  const std::string good = "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n";
  write_text(held_out, good + "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n" + good +
                           "{\"input_ids\": [1, 2, 3, 4], \"labels\": [1, 2, 3, 4]}\n");
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, good + good + good + good);
  const Arguments brief = {"--ctx-size",  "3", "--too-long",  "drop",
                           "--max-steps", "1", "--log-level", "info"};
  const ProgramResult other =
      run_ranks(2, sft(directory.path_of("other"), joined(brief, {"--eval-data", held_out}), data));
  expect_done(other);
  EXPECT_NE(other.err.find("held out: 2 samples, 6 tokens, 4 of them trained; 1 too long; "
                           "1 without a trained token left out"),
            std::string::npos)
      << other.text();
  const ProgramResult split =
      run_moesaic(sft(directory.path_of("split"), joined(brief, {"--eval-split", "1"}), data));
  expect_done(split);
  EXPECT_NE(split.err.find("held out: 1 sample, 3 tokens, 2 of them trained\n"), std::string::npos)
      << split.text();
  EXPECT_NE(split.err.find("; 1 step of 4 samples\n"), std::string::npos) << split.text();
}

TEST(Sft, LossesThatAreNoNumbersStopARunOrAreLeftOut) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments wild = {"--lora-alpha", "1000000", "--lora-rank", "1"};
  const ProgramResult stopped = run_ranks(2, sft(out, wild));
  expect_failure(stopped, 3, {"step", "is not finite", "--on-nonfinite"});
  EXPECT_EQ(stopped.err.find("MPI_ABORT"), std::string::npos) << stopped.text();
  expect_done(run_ranks(2, sft(out, joined(wild, {"--resume", "--on-nonfinite", "skip"}))));
  EXPECT_TRUE(events(out, "step").back().contains("skipped"));
  // What ends a run later leaves the steps before it. Gradients of step 5 are beyond the limit,
  // those of earlier steps below it, each by an eighth and more.
  const std::string late = directory.path_of("late");
  const Arguments steep = {"--lora-alpha", "320000", "--lora-rank", "1",
                           "--lr",         "1e-9",   "--schedule",  "constant"};
  expect_failure(run_moesaic(sft(late, steep)), 3,
                 {"step 5: ", "is not finite", "step 4 is saved in " + late});
  const ProgramResult rest =
      run_moesaic(sft(late, joined(steep, {"--resume", "--on-nonfinite", "skip"})));
  expect_done(rest);
  EXPECT_NE(rest.err.find(" of 6 steps were left out"), std::string::npos) << rest.err;
}

TEST(Sft, AnUpdateThatIsNoNumberIsNotSaved) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments wild = {"--adam-eps",     "0",    "--save-every", "1",
                          "--on-nonfinite", "skip", "--max-steps",  "2"};
  const ProgramResult stopped = run_ranks(2, sft(out, wild));
  expect_failure(stopped, 3, {"step 1", "adapter", "not finite after it", "epsilon"});
  EXPECT_FALSE(std::filesystem::exists(out + "/adapter_model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(out + "/checkpoint-1"));
}

TEST(Sft, GradientsAreNotWrittenOverWhatTheRunNeeds) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string data = directory.path_of("data.jsonl");
  std::filesystem::copy_file(MOESAIC_TEST_DATA "/demo-sft.jsonl", data);
  const auto refused = [&](const std::string& file, const std::string& what) {
    expect_failure(run_ranks(2, sft(out, {"--grad-out", file}, data)), 2,
                   {"--grad-out " + file, "would be written over", what});
  };
  refused(data, "--data");
  refused(MOESAIC_TEST_DATA "/demo-model/model.safetensors", "--model");
  const std::string own = directory.path_of("own.jinja");
  write_text(own, "{{ messages }}");
  write_text(directory.path_of("own.ini"), "max-steps = 1\n");
  for (const auto& [option, file] : {std::pair(std::string("--chat-template"), own),
                                     {"--config", directory.path_of("own.ini")}}) {
    expect_failure(run_moesaic(sft(out, {option, file, "--grad-out", file}, data)), 2,
                   {"--grad-out " + file, "would be written over the file of " + option});
  }
  refused(out + "/adapter_model.safetensors", "--output");
  refused(out + "/metrics.jsonl", "--output");
  refused(out + "/./checkpoint-1/gradients", "--output");
  const std::string adapter = out + "/adapter_config.json";
  expect_failure(run_moesaic(sft(out, {"--samples-out", adapter}, data)), 2,
                 {"--samples-out " + adapter, "would be written over", "--output"});
}

TEST(Sft, GradientsThatAreNotThereAreToldOf) {
  const TemporaryDirectory directory;
  const std::string gradients = directory.path_of("gradients.safetensors");
  const Arguments wild = {"--lora-alpha",   "1000000", "--lora-rank", "1",      "--max-steps", "1",
                          "--on-nonfinite", "skip",    "--grad-out",  gradients};
  const Arguments run = sft(directory.path_of("out"), wild);
  const ProgramResult skipped = run_ranks(2, run);
  expect_done(skipped);
  EXPECT_NE(skipped.err.find("nothing is written, as the first step is left out"),
            std::string::npos)
      << skipped.text();
  const ProgramResult done = run_moesaic(joined(run, {"--resume"}));
  expect_done(done);
  EXPECT_NE(done.err.find("nothing is written, as the first step is done"), std::string::npos)
      << done.text();
  EXPECT_FALSE(std::filesystem::exists(gradients));
}

}  // namespace
}  // namespace moesaic::test
