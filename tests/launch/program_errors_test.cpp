// What the program says, once on any number of ranks, where it cannot do what it is asked to.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(Errors, AreOneLineWhateverTheyQuote) {
  const TemporaryDirectory directory;
  const ProgramResult name = run_moesaic({"inspect", "-m", directory.path_of("a\nb\x1b[31m")});
  expect_failure(name, 3, {"/a\\nb\\x1b[31m: no such directory"});
  EXPECT_EQ(lines_of(name.err).size(), 1U) << name.text();
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  std::string header = read_text(model + "/model.safetensors");
  const std::size_t at = header.find("\"BF16\"");
  ASSERT_NE(at, std::string::npos);
  write_text(model + "/model.safetensors", header.replace(at, 6, "\"\\n\\r\""));
  const ProgramResult type = run_ranks(2, {"inspect", "-m", model});
  expect_failure(type, 3, {"\\n\\r"});
}

TEST(ProgramErrors, Usage) {
  expect_failure(run_moesaic({"genrate"}), 2, {"genrate", "did you mean generate?"});
  expect_failure(run_moesaic(generate_with({"--tpo-p", "1"})), 2, {"--tpo-p", "--top-p"});
  expect_failure(run_moesaic(generate_with({"--top-p", "2"})), 2, {"--top-p", "2"});
  expect_failure(run_moesaic(generate_with({"--numerics", "fast"})), 2,
                 {"--numerics", "fast", "native, portable"});
  expect_failure(run_moesaic({"generate", "-p", "x"}), 2, {"--model"});
  expect_failure(run_moesaic({"generate", "-m", kDemo}), 2, {"--prompt", "--file"});
  expect_failure(run_moesaic({"score", "-m", kDemo}), 2, {"--file"});
  expect_failure(run_moesaic(generate_with({"--isa", "avx512_bf16", "--numerics", "portable"})), 2,
                 {"--isa"});
  expect_failure(run_moesaic(generate_with({"--memory-limit", "lots"})), 2,
                 {"--memory-limit", "lots"});
}

TEST(ProgramErrors, PlacementThatIsNoWayToDealAndNoFile) {
  const auto placed = [](const std::string& where) {
    return generate_with({"--placement", where});
  };
  expect_failure(
      run_ranks(2, placed("roundrobin")), 2,
      {"--placement", "\"roundrobin\"", "contiguous, round_robin", "did you mean round_robin?"});
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--placement", "contigous"}), 2,
                 {"--placement", "did you mean contiguous?"});
  expect_failure(run_moesaic(placed("./roundrobin")), 3, {"./roundrobin", "no such file"});
}

TEST(ProgramErrors, MoreDeferredExpertsThanATokenHas) {
  expect_failure(run_ranks(2, generate_with({"--defer", "5"})), 2, {"--defer 5", "4", "top-k"});
  expect_failure(run_moesaic({"sft", "--defer", "1"}), 2, {"--defer"});
  expect_failure(run_moesaic({"sft", "--combine", "fast"}), 2, {"--combine"});
}

TEST(ProgramErrors, UsageIsToldOnceByManyRanks) {
  expect_failure(run_ranks(3, generate_with({"--top-p", "2"})), 2, {"[rank 0/3", "--top-p"});
  expect_failure(run_ranks(3, generate_with({"--expert-replicas", "2"})), 2,
                 {"--expert-replicas 2", "3 ranks"});
}

TEST(ProgramErrors, PromptEmptyOrNotUtf8) {
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", ""}), 2, {"empty"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", "a\xff"}), 2, {"not UTF-8"});
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts");
  for (const std::string verb : {"generate", "score"}) {
    write_text(file, "");
    expect_failure(run_ranks(2, {verb, "-m", kDemo, "-f", file}), 3, {"empty"});
    write_text(file, "good\nbad \xc3\x28\n");
  }
  expect_failure(run_moesaic({"score", "-m", kDemo, "-f", file}), 3, {file, "line 2 is not UTF-8"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file, "--strict"}), 3,
                 {file, "line 2 is not UTF-8"});
  write_text(file, "{\"text\": \"one\"}\n");
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file}), 3, {"line 1", "prompt"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file + "x"}), 3, {file + "x"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", "/dev/zero"}), 3,
                 {"/dev/zero is no text: byte 0 is NUL"});
}

TEST(ProgramErrors, TextTooShortToScore) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("text");
  write_text(file, "a");
  expect_failure(run_ranks(2, {"score", "-m", kDemo, "-f", file}), 3, {"1 token"});
  for (const auto& [line, text] :
       {std::pair(R"({"context": "In", "continuation": ""})", "the continuation has no tokens"),
        {R"({"context": "", "continuation": "In"})", "the context has no tokens"},
        {R"({"id": 1.5, "text": "In the"})", "id: neither a text nor a whole number"}}) {
    write_text(file, line);
    expect_failure(run_moesaic({"score", "-m", kDemo, "-f", file}), 3, {"line 1", text});
  }
}

TEST(ProgramErrors, ContextExceeded) {
  expect_failure(run_ranks(2, generate_with({"-n", "5000"})), 2, {"5000", "2048", "--ctx-size"});
  expect_failure(run_moesaic(generate_with({"--ctx-size", "6"})), 2, {"6", "--ctx-size"});
  const ProgramResult score = run_moesaic(
      {"score", "-m", kDemo, "-f", kData + "/demo-heldout.txt", "-c", "100", "--no-window"});
  expect_failure(score, 2, {"100", "--ctx-size"});
  const std::string text = kData + "/demo-heldout.txt";
  expect_failure(run_moesaic({"score", "-m", kDemo, "-f", text, "-c", "1"}), 2,
                 {"--ctx-size 1", "at least 2"});
}

TEST(ProgramErrors, RepositoryInPlaceOfADirectory) {
  expect_failure(run_moesaic({"generate", "-m", "Qwen/Qwen3-30B-A3B", "-p", "x"}), 3,
                 {"Qwen/Qwen3-30B-A3B: no such directory",
                  "hf download Qwen/Qwen3-30B-A3B --local-dir Qwen3-30B-A3B"});
  const ProgramResult path = run_moesaic({"generate", "-m", "/no/model", "-p", "x"});
  expect_failure(path, 3, {"/no/model: no such directory"});
  EXPECT_EQ(path.err.find("hf download"), std::string::npos) << path.text();
}

TEST(ProgramErrors, LinksInACircleAreNamedByEveryVerb) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string path = model + "/tokenizer.json";
  std::filesystem::remove(path);
  std::filesystem::create_symlink("tokenizer.json", path);
  const std::string text = "tokenizer.json: Too many levels of symbolic links";
  expect_failure(run_moesaic({"generate", "-m", model, "-p", "x"}), 3, {text});
  expect_failure(run_moesaic({"inspect", model}), 3, {text});
  expect_failure(run_moesaic({"convert", "-m", model, "-o", directory.path_of("out")}), 3, {text});
}

TEST(ProgramErrors, MoreRanksThanExperts) {
  const std::string model = kData + "/models/mixtral-v5";  // 5 experts
  expect_failure(run_ranks(6, {"generate", "-m", model, "-p", "x"}), 2,
                 {"6 ranks", "5 experts", "at most 5"});
}

TEST(ProgramErrors, NotEnoughMemory) {
  const ProgramResult result = run_ranks(2, generate_with({"--memory-limit", "2M"}));
  expect_failure(result, 4, {"not enough memory", "2.00 MiB", "experts 5.62 MiB"});
}

TEST(ProgramErrors, LogitsFileCannotBeWritten) {
  const ProgramResult result = run_ranks(
      2, {"score", "-m", kDemo, "-f", kData + "/demo-prompts.txt", "--logits-out", "/nope/x"});
  expect_failure(result, 4, {"/nope/x"});
}

/// What is written when all is done is tried before.
TEST(ProgramErrors, OutputsThatCannotBeWrittenAreRefusedBeforeTheWork) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path_of("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text = kData + "/demo-prompts.txt";
  for (const auto& [path, why] : {std::pair<std::string, std::string>("/nope/x", "No such file"),
                                  {directory.path(), "it is a directory"},
                                  {pipe, "not a regular file"}}) {
    const Arguments record = {"--record-load", path};
    for (const ProgramResult& result :
         {run_ranks(2, generate_with(record)),
          run_moesaic(joined({"score", "-m", kDemo, "-f", text}, record)),
          run_moesaic({"doctor", "--measure", path})}) {
      expect_failure(result, 4, {path, why});
      EXPECT_EQ(result.out, "");
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  const Arguments score = {"score", "-m", kDemo, "-f", text, "--logprobs-out"};
  expect_failure(run_moesaic(joined(score, {pipe})), 4, {pipe, "not a regular file"});
  expect_failure(run_moesaic(generate_with({"--out", pipe})), 4, {pipe, "not a regular file"});
  expect_failure(run_moesaic(generate_with({"--out", "-"})), 2, {"--out -", "--json"});
}

TEST(ProgramErrors, StandardOutputCannotBeWritten) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string program = MOESAIC_PROGRAM;
  for (const std::string& arguments :
       {std::string("--help"), std::string("generate --help"), "tokenize -p x -m " + kDemo}) {
    const ProgramResult result =
        run_program({"/bin/sh", "-c", program + " " + arguments + " > /dev/full"});
    expect_failure(result, 4, {"standard output"});
  }
  const ProgramResult generated = run_program(
      {"/bin/sh", "-c",
       program + " generate -m " + kDemo + " -f " + kData + "/demo-prompts.txt -n 2 > /dev/full"});
  expect_failure(generated, 4, {"standard output"});
  EXPECT_EQ(generated.err.find("tokens/s"), std::string::npos) << "it ends at the first text";
  // More than a buffer holds, so that it fails on the way and not at the end; without ranks, too.
  for (const auto& [arguments, message] :
       {std::pair("tokenize -m " + kDemo + " -f " + kData + "/demo-heldout.txt --json",
                  "the standard output could not be written"),
        std::pair("plan -m " + kDemo + " --ranks 64 --expert-replicas 4 --json",
                  "No space left on device")}) {
    const ProgramResult result =
        run_program({"/bin/sh", "-c", program + " " + arguments + " > /dev/full"});
    expect_failure(result, 4, {message});
  }
}

/// A shell that limits itself and becomes moesaic with these arguments.
ProgramResult run_limited(const std::string& limit, const Arguments& arguments,
                          const Variables& variables = {}) {
  return run_program(
      joined({"bash", "-c", limit + "; exec \"$0\" \"$@\"", MOESAIC_PROGRAM}, arguments),
      variables);
}

TEST(ProgramErrors, SystemsWithoutRoomAreToldInOneLine) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map terabytes
  expect_failure(run_limited("ulimit -v 250000", generate_with({})), 4, {"ulimit -v"});
#endif
  const TemporaryDirectory directory;
  const std::string gone = directory.path_of("gone");
  const ProgramResult nowhere = run_limited("true", generate_with({}), {{"TMPDIR", gone}});
  expect_failure(nowhere, 4, {gone + ": cannot be written: No such file", "TMPDIR"});
  EXPECT_EQ(lines_of(nowhere.err).size(), 1U) << nowhere.text();
  EXPECT_EQ(num_files(directory.path()), 0);
}

TEST(ProgramErrors, OptionsWithoutEffectAreNoted) {
  const auto notes = [](const Arguments& more) { return run_moesaic(generate_with(more)).err; };
  const std::string none = "--int4-activations int8 has no effect: no weights are in int4_group128";
  EXPECT_NE(notes({"--int4-activations", "int8"}).find(none), std::string::npos);
  EXPECT_NE(notes({"--int4-activations", "int8", "--expert-format", "int4_group"}).find(none),
            std::string::npos);
  // The demo model's experts have an inner size of 64, half a group of 128: the head has more.
  EXPECT_EQ(notes({"--int4-activations", "int8", "--head-format", "int4_group128"}).find(none),
            std::string::npos);
  EXPECT_NE(notes({"--nvfp4-activations", "nvfp4"}).find("has no effect"), std::string::npos);
  EXPECT_EQ(notes({"--nvfp4-activations", "nvfp4", "--expert-format", "nvfp4"}).find("no effect"),
            std::string::npos);
}

TEST(ProgramErrors, TracesAreOfTheLastJobAlone) {
  const TemporaryDirectory directory;
  const auto fail_on = [&](int ranks) {
    expect_failure(run_ranks(ranks, {"generate", "-m", "/nope", "-p", "x", "--trace-dir",
                                     directory.path_of("traces")}),
                   3, {"/nope"});
  };
  const auto has = [&](const std::string& name) {
    return std::filesystem::exists(directory.path_of("traces/" + name));
  };
  fail_on(3);
  EXPECT_TRUE(has("rank-2.jsonl"));
  for (const char* other : {"rank-.jsonl", "rank-2.json", "rank-2b.jsonl"}) {
    write_text(directory.path_of("traces/" + std::string(other)), "mine");
  }
  fail_on(2);
  EXPECT_TRUE(has("rank-0.jsonl") && has("rank-1.jsonl"));
  EXPECT_FALSE(has("rank-2.jsonl"));
  EXPECT_TRUE(has("rank-.jsonl") && has("rank-2.json") && has("rank-2b.jsonl"));
}

TEST(ProgramErrors, ClosedStandardDescriptorsAreNotTakenForFiles) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string command = std::string(MOESAIC_PROGRAM) + " convert -m " + kDemo + " -o ";
  EXPECT_EQ(run_program({"/bin/sh", "-c", command + out + " <&- >&- 2>&-"}).exit_code, 4);
  expect_failure(run_program({"/bin/sh", "-c", command + out + "2 >&-"}), 4, {"standard output"});
  EXPECT_EQ(run_moesaic({"inspect", out, "--verify"}).exit_code, 0);
}

TEST(ProgramErrors, SharedMemoryThatCannotBeHadIsNotReplacedWhenAskedFor) {
  // No file may grow, memory files among them; MPI itself needs none over TCP.
  const Arguments limited = {"bash", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"",
                             MOESAIC_PROGRAM};
  const Arguments ranks = joined({MOESAIC_MPIRUN, "-n", "2"}, limited);
  const ProgramResult result = run_program(
      joined(ranks, {"generate", "-m", kDemo, "-p", "In the", "-n", "1", "--transport", "shm"}),
      {{"OMPI_MCA_btl", "tcp,self"}});
  expect_failure(result, 4, {"--transport shm", "no room"});
}

TEST(ProgramErrors, SharedMemoryIsRefusedWhereNoTwoRanksShareANode) {
  const Arguments generate = {"generate", "-m", kDemo,         "-p",  "In the",
                              "-n",       "1",  "--transport", "shm", "--ranks-per-node",
                              "1"};
  expect_failure(run_ranks(2, generate), 2, {"--transport shm", "alone on its node"});
  EXPECT_EQ(run_ranks(1, generate).exit_code, 0) << "nothing goes anywhere";
}

TEST(ProgramErrors, WhatOneRankCannotMakeEndsAllWithEveryTransport) {
  const TemporaryDirectory directory;  // of rank 0; no file can be made where rank 1 is
  const Arguments apart = {"bash", "-c",
                           "if [[ $OMPI_COMM_WORLD_RANK == 1 ]]; then cd /proc/self; "
                           "else cd \"$0\"; fi; exec \"$@\"",
                           directory.path(), MOESAIC_PROGRAM};
  for (const std::string transport : {"auto", "shm", "mpi"}) {
    expect_failure(run_program(joined(joined({MOESAIC_MPIRUN, "-n", "2"}, apart),
                                      {"doctor", "--trace-dir", ".", "--transport", transport})),
                   4, {"rank-1.jsonl: cannot be written"});
  }
}

// --- files ------------------------------------------------------------------------------------

class BrokenModelTest : public testing::TestWithParam<BrokenModel> {};

TEST_P(BrokenModelTest, IsRefusedWithOneLine) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model(GetParam().base, model);
  GetParam().break_it(model);
  const Arguments arguments = {"generate", "-m", model, "-p", "In the", "-n", "1"};
  expect_failure(run_moesaic(arguments), GetParam().exit_code, GetParam().texts);
  const ProgramResult ranks = run_ranks(3, arguments);
  expect_failure(ranks, GetParam().exit_code, GetParam().texts);
}

INSTANTIATE_TEST_SUITE_P(All, BrokenModelTest, testing::ValuesIn(broken_models()),
                         [](const auto& model) { return model.param.name; });

TEST(ProgramErrors, NothingThatARunReadsIsWrittenOver) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string text = directory.path_of("text");
  write_text(text, "In the beginning\n");
  const std::string data = directory.path_of("data.jsonl");
  const std::string line = "{\"text\": \"In the beginning\"}\n";
  write_text(data, line);
  const std::string both = directory.path_of("both");
  const std::string config = model + "/config.json";
  const std::string config_text = read_text(config);
  const auto expect_refusal = [&](const Arguments& arguments, const std::string& what) {
    expect_failure(run_moesaic(joined(arguments, {"-m", model})), 2,
                   {"would be written over", what});
  };
  const Arguments score = {"score", "-f", text};
  expect_refusal(joined(score, {"--record-load", text}), "the file of --file");
  expect_refusal(joined(score, {"--logits-out", text}), "the file of --file");
  expect_refusal(joined(score, {"--record-load", config}), "a file of --model");
  expect_refusal(joined(score, {"--logits-out", both, "--record-load", both}),
                 "the file of --logits-out");
  expect_refusal({"generate", "-f", text, "-n", "1", "--record-load", text}, "the file of --file");
  expect_refusal({"sft", "--data", data, "--samples-out", data}, "the file of --data");
  expect_refusal({"sft", "--data", data, "--samples-out", config}, "a file of --model");
  EXPECT_EQ(read_text(text), "In the beginning\n");
  EXPECT_EQ(read_text(data), line);
  EXPECT_EQ(read_text(config), config_text);
}

}  // namespace
}  // namespace moesaic::test
