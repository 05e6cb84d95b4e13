// The output directory of moesaic sft: what is there is not lost, what goes on goes on rightly.

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "src/checkpoint/safetensors.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

TEST(Sft, TwoRunsDoNotTrainIntoOneDirectory) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments endless = with_steps("100000", sft(out));
  RunningProgram program(moesaic_command(endless));
  ASSERT_TRUE(program.wait_until([&] { return std::filesystem::exists(out + "/metrics.jsonl"); }));
  for (const char* how : {"--resume", "--overwrite"}) {
    expect_failure(run_moesaic(joined(endless, {how})), 2,
                   {out, "another process is training into it"});
  }
  EXPECT_TRUE(std::filesystem::exists(out + "/metrics.jsonl"));
}

TEST(Sft, WhatIsEvaluatedStandsOnceHoweverOftenARunGoesOn) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments more = {"--eval-split", "4", "--eval-every", "3", "--resume"};
  const Arguments endless = with_steps("100000", sft(out, more));
  {
    RunningProgram program(moesaic_command(endless));  // ends before anything is saved
    ASSERT_TRUE(program.wait_until([&] {
      return std::filesystem::exists(out + "/metrics.jsonl") && !events(out, "eval").empty();
    }));
    program.send(SIGKILL);
    (void)program.wait();
  }
  for (int run = 0; run < 2; ++run) {
    expect_done(run_moesaic(sft(out, more)));
    std::vector<std::int64_t> steps;
    for (const Json& eval : events(out, "eval")) steps.push_back(eval.at("step").as_int());
    EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 3, 6})) << run;
    EXPECT_EQ(events(out, "step").size(), 6U);
  }
}

TEST(Sft, OverwritesNothingThatItDidNotMakeOrReads) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out)));
  const std::string data = out + "/own.jsonl";
  std::filesystem::copy(kConversations, data);
  expect_failure(run_moesaic(sft(out + "/", {"--overwrite", "--lora", out})), 2,
                 {"--lora " + out + " would be overwritten"});
  const std::string before = adapter(out);
  write_text(out + "/adapter_model.safetensors.part-1", "of one that was killed");
  const std::string own = out + "/adapter_model.safetensors.part-aa";  // as split names its pieces
  write_text(own, "somebody's");
  expect_done(run_moesaic(sft(out, {"--overwrite"}, data)));
  EXPECT_FALSE(std::filesystem::exists(out + "/adapter_model.safetensors.part-1"));
  EXPECT_EQ(read_text(own), "somebody's");
  EXPECT_EQ(adapter(out), before);
  EXPECT_EQ(read_text(data), read_text(kConversations));
}

TEST(Sft, CheckpointsTakeNothingOfOthersWithThem) {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string first = out + "/checkpoint-1";
  expect_done(run_moesaic(sft(out, {"--max-steps", "2", "--save-every", "1"})));
  for (const std::string& inside :
       {first + "/run", out + "/checkpoint-9", out + "/checkpoint-9/run/"}) {
    expect_failure(run_moesaic(sft(inside)), 2,
                   {inside, "is for a checkpoint of the run in " + out});
    EXPECT_FALSE(fs::exists(inside));
  }
  write_text(first + "/notes.txt", "years of work");
  fs::create_directory(out + "/checkpoint-of-mine");
  expect_done(run_moesaic(sft(out, {"--max-steps", "2", "--resume", "--keep", "1"})));
  EXPECT_FALSE(fs::exists(first + "/state.json"));
  EXPECT_TRUE(fs::exists(first + "/notes.txt"));
  const Arguments anew = sft(out, {"--max-steps", "2", "--overwrite"});
  expect_failure(run_ranks(2, anew), 2, {first + "/notes.txt", "not made by moesaic sft"});
  EXPECT_TRUE(fs::exists(out + "/checkpoint-2/state.json"));
  fs::remove(first + "/notes.txt");
  write_text(out + "/checkpoint-7", "mine");
  for (const char* const how : {"--overwrite", "--resume"}) {
    expect_failure(run_moesaic(sft(out, {"--max-steps", "2", how})), 2,
                   {out + "/checkpoint-7", "not made by moesaic sft"});
  }
  fs::remove(out + "/checkpoint-7");
  expect_done(run_moesaic(anew));
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(out + "/checkpoint-of-mine"));
}

TEST(Sft, AFileIsNoPlaceForAnAdapter) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("file");
  write_text(file, "mine");
  for (const Arguments& more : {Arguments{}, Arguments{"--overwrite"}}) {
    expect_failure(run_moesaic(sft(file, more)), 2, {"--output " + file + ": is a file"});
  }
  EXPECT_EQ(read_text(file), "mine");
}

TEST(Sft, APlaceThatCannotBeMadeIsToldBeforeTheModelIsLoaded) {
  const TemporaryDirectory directory;
  write_text(directory.path_of("file"), "");
  for (const Arguments& arguments :
       {sft(directory.path_of("file/out")), sft(directory.path_of("none/out")),
        sft(directory.path_of("out"), {"--grad-out", directory.path_of("none/gradients")})}) {
    Arguments telling = arguments;
    *std::ranges::find(telling, "warning") = "info";
    const ProgramResult result = run_moesaic(telling);
    expect_failure(result, 4, {directory.path()});
    EXPECT_EQ(result.err.find("weights: "), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(directory.path_of("none")));
    EXPECT_FALSE(std::filesystem::exists(directory.path_of("out")));
  }
}

TEST(Sft, WhatIsThereIsNotLost) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out)));
  expect_failure(run_moesaic(sft(out)), 2, {out, "--resume", "--overwrite"});
  expect_failure(run_ranks(2, sft(out, {"--resume", "--overwrite"})), 2,
                 {"--resume and --overwrite exclude each other"});
  const std::string options = read_text(out + "/options.ini");
  const ProgramResult other =
      run_moesaic(sft(out, {"--resume", "--lr", "0.001", "--max-steps", "9"}));
  expect_failure(other, 2, {"made with --lr 0.003, not 0.001; --max-steps 6, not 9;"});
  EXPECT_EQ(read_text(out + "/options.ini"), options) << "still those of the run";
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, "{\"text\": \"In the beginning\"}\n");
  expect_failure(run_moesaic(sft(out, {"--resume"}, data)), 2,
                 {"made with --data " + kConversations});
  write_text(out + "/metrics.jsonl", "{\"event\": \"start\", \"step\": 0}\nnot JSON\n");
  expect_failure(run_moesaic(sft(out, {"--resume"})), 3,
                 {"metrics.jsonl line 2: not valid JSON", "take out the line or move the file"});
  const std::string foreign = directory.path_of("foreign");
  std::filesystem::create_directory(foreign);
  write_text(foreign + "/thesis.txt", "years of work");
  expect_failure(run_moesaic(sft(foreign, {"--overwrite"}, directory.path_of("none"))), 2,
                 {foreign, "not made by moesaic sft"});
  EXPECT_TRUE(std::filesystem::exists(foreign + "/thesis.txt"));
}

TEST(Sft, FoldersInThePlacesOfFilesAreToldBeforeTheModelIsLoaded) {
  const TemporaryDirectory directory;
  for (const std::string file : {"loss.svg", "metrics.jsonl", "adapter_model.safetensors"}) {
    const std::string out = directory.path_of(file);
    std::filesystem::create_directories(out + "/" + file);
    write_text(out + "/options.ini", "");
    const ProgramResult result = run_moesaic(sft(out, {"--overwrite"}));
    expect_failure(result, 4, {out + "/" + file});
    EXPECT_EQ(result.err.find("weights: "), std::string::npos) << result.err;
    EXPECT_TRUE(std::filesystem::is_directory(out + "/" + file));
  }
}

TEST(Sft, CheckpointsAreEnoughToGoOnFrom) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out, {"--save-every", "3"})));
  const std::string adapter = read_text(out + "/adapter_model.safetensors");
  for (const char* const file : {"/options.ini", "/metrics.jsonl", "/adapter_model.safetensors"}) {
    std::filesystem::remove(out + file);
  }
  expect_failure(run_moesaic(sft(out, {"--overwrite"})), 2, {"not made by moesaic sft"});
  expect_done(run_ranks(2, sft(out, {"--resume"})));
  EXPECT_EQ(read_text(out + "/adapter_model.safetensors"), adapter);
  EXPECT_TRUE(std::filesystem::exists(out + "/options.ini"));
}

TEST(Sft, AnAdapterBesideCheckpointsOfAnotherProgramIsNotReplaced) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  std::filesystem::create_directories(out + "/checkpoint-3");
  write_text(out + "/checkpoint-3/trainer_state.json", "{}");
  write_text(out + "/adapter_model.safetensors", "another's");
  for (const char* const how : {"--resume", "--overwrite"}) {
    expect_failure(run_moesaic(sft(out, {how})), 2, {"not made by moesaic sft"});
  }
  EXPECT_EQ(read_text(out + "/adapter_model.safetensors"), "another's");
}

TEST(Sft, TheLastLineOfMetricsMayBeCut) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out)));
  const std::string metrics = read_text(out + "/metrics.jsonl");
  write_text(out + "/metrics.jsonl", metrics + "{\"event\": \"step\", \"st");
  expect_done(run_moesaic(sft(out, {"--resume"})));
  EXPECT_TRUE(read_text(out + "/metrics.jsonl").starts_with(metrics + "{\"event\": \"start\""));
  EXPECT_EQ(events(out, "step").size(), 6U);
}

TEST(Sft, ARunGoesOnWithItsOwnModelAlone) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const Arguments run = sft(out, {"-m", model, "--max-steps", "2"});
  expect_done(run_moesaic(run));
  std::fstream weights(model + "/model.safetensors",
                       std::ios::binary | std::ios::in | std::ios::out);
  weights.seekp(400'000);
  weights.put('');
  weights.close();
  expect_failure(run_ranks(2, joined(run, {"--resume"})), 2,
                 {out + "/checkpoint-2: was made from another model", "--overwrite"});
}

TEST(Sft, TheOptionsOfARunThatHadAFileAreAFile) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  const std::string out = directory.path_of("out");
  write_text(file, "weight-decay = 0.01\n");
  expect_done(run_moesaic(sft(out, {"--config", file, "--max-steps", "2"})));
  const std::string first = adapter(out);
  const std::string options = directory.path_of("options.ini");
  std::filesystem::copy_file(out + "/options.ini", options);
  expect_done(run_moesaic({"sft", "--config", options, "--overwrite"}));
  EXPECT_EQ(adapter(out), first);
  expect_done(run_moesaic({"sft", "--config", out + "/options.ini", "--resume"}));
  expect_done(run_moesaic({"sft", "--config", out + "/options.ini", "--overwrite"}));
}

TEST(Sft, GradientsOfTheFirstStepAreWrittenBeforeClipping) {
  const TemporaryDirectory directory;
  const auto gradients = [&](int ranks) {
    return directory.path_of("gradients" + std::to_string(ranks) + ".safetensors");
  };
  const auto run = [&](int ranks, const Arguments& more) {
    const std::string out = directory.path_of("out" + std::to_string(ranks));
    const Arguments arguments = {"--max-steps", "2",          "--clip",
                                 "0.01",        "--grad-out", gradients(ranks)};
    expect_done(run_ranks(ranks, sft(out, joined(arguments, more))));
    return out;
  };
  const std::string out = run(1, {});
  run(2, {"--recompute", "always"});
  run(3, {"--expert-replicas", "3", "--recompute", "auto"});
  EXPECT_EQ(read_text(gradients(2)), read_text(gradients(1)));
  EXPECT_EQ(read_text(gradients(3)), read_text(gradients(1)));

  const SafetensorsFile found = SafetensorsFile::open(gradients(1));
  const SafetensorsFile trained = SafetensorsFile::open(out + "/adapter_model.safetensors");
  ASSERT_EQ(found.tensors().size(), trained.tensors().size());
  double squares = 0;
  for (const TensorView& tensor : found.tensors()) {
    const TensorView* const its = trained.find(tensor.name);
    ASSERT_NE(its, nullptr) << tensor.name;
    EXPECT_EQ(tensor.dtype, DType::f32);
    EXPECT_EQ(tensor.shape, its->shape) << tensor.name;
    double of_tensor = 0;
    for (const double value : numbers(tensor)) of_tensor += value * value;
    if (tensor.name.find("lora_A") != std::string::npos) {
      EXPECT_EQ(of_tensor, 0) << tensor.name << ", while B is zero";
    }
    squares += of_tensor;
  }
  const double norm = events(out, "step").front().at("grad_norm").as_double();
  EXPECT_GT(norm, 0.01);
  EXPECT_NEAR(std::sqrt(squares), norm, 1e-6 * norm);
}

TEST(Sft, MetricsHaveTheKeysThatAreDocumented) {
  const std::map<std::string, std::set<std::string>> documented = {
      {"start",
       {"step", "total_steps", "samples", "held_out_samples", "tokens", "trained_tokens",
        "trainable", "ranks", "recompute", "digest"}},
      {"step",
       {"step", "epoch", "loss", "grad_norm", "lr", "samples", "tokens", "trained_tokens",
        "seconds", "tokens_per_second", "balance_loss", "load_max_over_mean", "wait_seconds"}},
      {"eval", {"step", "loss", "trained_tokens", "seconds", "digest"}},
      {"save", {"step", "seconds"}},
      {"end",
       {"reason", "step", "seconds", "peak_bytes", "peak_bytes_min", "peak_bytes_max",
        "node_peak_bytes"}}};
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(sft(out, {"--max-steps", "1", "--eval-split", "2"})));
  for (const auto& [event, keys] : documented) {
    const std::vector<Json> lines = events(out, event);
    ASSERT_FALSE(lines.empty()) << event;
    for (const Json& line : lines) {
      std::set<std::string> found;
      line.for_each([&](const std::string& key, const Json&) { found.insert(key); });
      found.erase("event");
      EXPECT_EQ(found, keys) << event;
    }
  }
}

TEST(Sft, TheLastLineSaysWhichTransformersLoadTheAdapter) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("a user's");
  const auto last_line = [&](const Arguments& more) {
    const Arguments one = {"--max-steps", "1", "--log-level", "info", "--overwrite"};
    const ProgramResult done = run_moesaic(sft(out, joined(one, more)));
    expect_done(done);
    const std::vector<std::string> lines = lines_of(done.err);
    EXPECT_TRUE(lines.at(lines.size() - 2).starts_with("memory     ")) << done.err;
    return lines.back();
  };
  const std::string line = last_line({});
  EXPECT_NE(line.find("for PEFT with transformers 4 or 5;"), std::string::npos) << line;
  const std::string command = "moesaic convert -m " + kDemo + " --lora '" +
                              directory.path_of(R"(a user'\''s)") + "' --merge -o MERGED ";
  EXPECT_NE(line.find(command), std::string::npos) << line << " can be typed";
  EXPECT_NE(
      last_line({"--rslora"}).find("--adapter-layout transformers5 -o OUT writes it for that"),
      std::string::npos);
}

TEST(Sft, FamiliesOfTransformers5AloneGetItsLayout) {
  const TemporaryDirectory directory;
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, R"({"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]})");
  const ProgramResult done =
      run_moesaic({"sft", "-m", MOESAIC_TEST_DATA "/models/hy_v3-v5", "--data", data, "-o",
                   directory.path_of("out"), "--global-batch-size", "1", "--log-level", "info"});
  expect_done(done);
  EXPECT_NE(done.err.find("for PEFT with transformers 5, the first that has this family;"),
            std::string::npos)
      << done.err;
  const Json config = Json::read_file(directory.path_of("out/adapter_config.json"));
  EXPECT_GT(config.at("target_parameters").size(), 0);
  const ProgramResult other = run_moesaic({"convert", "-m", MOESAIC_TEST_DATA "/models/hy_v3-v5",
                                           "--lora", directory.path_of("out"), "--adapter-layout",
                                           "transformers4", "-o", directory.path_of("other")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("family hy_v3 is in transformers 5 alone"), std::string::npos)
      << other.err;
}

TEST(Sft, ExpertsInBlocksAreTrainedByDefaultAndMerged) {
  const TemporaryDirectory directory;
  const std::string model = MOESAIC_TEST_DATA "/models/gpt_oss-mxfp4";
  const std::string data = directory.path_of("data.jsonl");
  const std::string out = directory.path_of("out");
  write_text(data, R"({"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]})");
  const ProgramResult done = run_moesaic({"sft", "-m", model, "--data", data, "-o", out,
                                          "--global-batch-size", "1", "--log-level", "info"});
  expect_done(done);
  EXPECT_NE(done.err.find(", experts "), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("for PEFT with transformers 5, as 4 may read this model otherwise;"),
            std::string::npos)
      << done.err;
  const std::string command = "convert -m " + model + " --lora " + out;
  EXPECT_NE(done.err.find(command), std::string::npos) << done.err;
  expect_done(run_moesaic(
      {"convert", "-m", model, "--lora", out, "--merge", "-o", directory.path_of("merged")}));
}

}  // namespace
}  // namespace moesaic::test
