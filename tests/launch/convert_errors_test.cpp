// What moesaic convert refuses, and what is told of broken converted directories.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/checksum.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

TEST(ConvertErrors, Usage) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_failure(run_moesaic({"convert", "-m", kDemo}), 2, {"--output"});
  expect_failure(run_moesaic({"convert", "-o", out}), 2, {"--model"});
  expect_failure(run_moesaic(convert_to(out, {"--expert-format", "int5"})), 2,
                 {"--expert-format", "\"int5\"", "int4_group128", "did you mean int"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", "x", "--expert-format", "int4",
                              "--precision", "fp32"}),
                 2, {"--expert-format int4", "--precision fp32"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", "x", "--dense-format", "nvfp4",
                              "--precision", "fp32"}),
                 2, {"--dense-format nvfp4", "--precision fp32"});
  expect_failure(run_ranks(2, {"generate", "-m", kDemo, "-p", "x", "--mmap"}), 2,
                 {"moesaic convert"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", "x", "--verify"}), 2,
                 {"moesaic convert"});
  expect_failure(run_moesaic({"inspect", kDemo, "--verify"}), 2, {"moesaic convert"});
  expect_failure(run_ranks(2, convert_to(directory.path_of("no/out"))), 4, {"no/out.part"});
  EXPECT_EQ(num_files(directory.path()), 0);
}

TEST(ConvertErrors, AConvertedDirectoryIsWhatItIs) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_moesaic(convert_to(out, {"--expert-format", "mxfp4"})).exit_code, 0);
  const auto score = [&](Arguments more) {
    more.insert(more.begin(), {"score", "-m", out, "-f", kData + "/demo-prompts.txt"});
    return run_ranks(2, more);
  };
  expect_failure(score({"--expert-format", "int4"}), 2, {out, "mxfp4, not int4"});
  expect_failure(score({"--precision", "fp32"}), 2, {out, "fp32"});
  expect_failure(run_moesaic({"convert", "-m", out, "-o", directory.path_of("again")}), 2,
                 {out, "convert the checkpoint"});
}

TEST(ConvertErrors, WhatIsThereStays) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_moesaic(convert_to(out)).exit_code, 0);
  const std::map<std::string, std::string> before = contents(out);
  const Arguments other = convert_to(out, {"--expert-format", "int8"});
  expect_failure(run_ranks(2, other), 2, {out, "--overwrite"});
  EXPECT_TRUE(contents(out) == before);
  Arguments overwrite = other;
  overwrite.push_back("--overwrite");
  EXPECT_EQ(run_ranks(2, overwrite).exit_code, 0);
  EXPECT_FALSE(contents(out) == before);
  EXPECT_EQ(num_files(directory.path()), 1);

  const std::string mine = directory.path_of("mine");
  fs::create_directory(mine);
  write_text(mine + "/letter.txt", "dear");
  expect_failure(run_moesaic(convert_to(mine, {"--overwrite"})), 2, {mine, "not made by"});
  EXPECT_EQ(num_files(mine), 1);
}

TEST(ConvertErrors, NothingElseGoesWithWhatIsReplaced) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_moesaic(convert_to(out)).exit_code, 0);
  const Arguments overwrite = {"--overwrite"};
  for (const std::string name : {"notes.txt", "adapter"}) {
    const std::string path = out + "/" + name;
    if (name == "adapter") {
      std::filesystem::create_directory(path);
    } else {
      write_text(path, "mine");
    }
    expect_failure(run_moesaic(convert_to(out, overwrite)), 2, {path, "was not made by"});
    std::filesystem::remove(path);
  }
  EXPECT_EQ(run_moesaic(convert_to(out, overwrite)).exit_code, 0);
  // Nor what it is made of.
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  for (const std::string& to : {model, directory.path_of(".")}) {
    expect_failure(run_moesaic({"convert", "-m", model, "-o", to, "--overwrite"}), 2,
                   {"--output " + to, "--model is there"});
  }
  expect_failure(run_moesaic({"convert", "-m", model, "--lora", kData + "/adapters", "--merge",
                              "-o", kData, "--overwrite"}),
                 2, {"--lora is there"});
}

TEST(ConvertErrors, AFullDiskIsToldAndLeavesNothing) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string program = MOESAIC_PROGRAM;
  const ProgramResult full = run_program(  // files of at most 8 MB
      {"/bin/sh", "-c",
       "ulimit -f 16000; exec " + program + " convert -m " + kDemo + " -o " + out});
  expect_failure(full, 4, {"packed-00001-of-00001.bin", "cannot reserve"});
  EXPECT_EQ(num_files(directory.path()), 0);
}

TEST(ConvertErrors, ABrokenCheckpointLeavesNothing) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  std::ranges::find(broken_models(), "WrongShape", &BrokenModel::name)->break_it(model);
  const Arguments arguments = {"convert", "-m", model, "-o", directory.path_of("out")};
  expect_failure(run_ranks(2, arguments), 3, {"down_proj.weight", "[64, 192]"});
  EXPECT_EQ(num_files(directory.path()), 1);
}

TEST(ConvertErrors, ValuesThatCannotBeQuantisedAreNamed) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string path = model + "/model.safetensors";
  std::string text = read_text(path);
  // Every weight of the last third becomes a NaN.
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(text.size() * 2 / 3), text.end(), '\xff');
  write_text(path, text);
  const Arguments arguments = {"convert",         "-m",   model, "-o", directory.path_of("out"),
                               "--expert-format", "nvfp4"};
  expect_failure(run_ranks(3, arguments), 3, {"weight \"", "not finite"});
  EXPECT_EQ(num_files(directory.path()), 1);
}

/// A way in which a converted directory can be broken, and what is to be said about it.
struct BrokenDirectory {
  std::string name;
  std::function<void(const std::string& directory)> break_it;
  std::vector<std::string> texts;
  bool needs_verify = false;
};

void PrintTo(const BrokenDirectory& broken, std::ostream* out) {
  *out << broken.name;
}

const std::string kPackedShard = "packed-00001-of-00001.bin";

/// Replaces text of the manifest and, if it is to pass as genuine, signs it anew.
std::function<void(const std::string&)> manifest_edit(std::string from, std::string to,
                                                      bool sign = true) {
  return [=](const std::string& directory) {
    const std::string path = directory + "/manifest.json";
    std::string text = replaced(read_text(path), from, to);
    if (sign) {
      const std::string body = text.substr(text.find('\n') + 1);
      text = "{\"checksum\": \"" + checksum_text(checksum(body)) + "\",\n" + body;
    }
    write_text(path, text);
  };
}

std::function<void(const std::string&)> resizing(std::string file, std::int64_t by) {
  return [=](const std::string& directory) {
    const std::string path = directory + "/" + file;
    fs::resize_file(
        path, static_cast<std::uintmax_t>(static_cast<std::int64_t>(fs::file_size(path)) + by));
  };
}

std::vector<BrokenDirectory> broken_directories() {
  return {
      {"NoManifest",
       [](const std::string& d) { fs::remove(d + "/manifest.json"); },
       {"without manifest.json"}},
      {"NoConfig", [](const std::string& d) { fs::remove(d + "/config.json"); }, {"config.json"}},
      {"NoShard",
       [](const std::string& d) { fs::remove(d + "/" + kPackedShard); },
       {kPackedShard, "no such file"}},
      {"ShardCut", resizing(kPackedShard, -4096), {kPackedShard, "cut short"}},
      {"ShardLonger", resizing(kPackedShard, 1), {kPackedShard, "altered"}},
      {"ManifestCut", resizing("manifest.json", -10), {"manifest.json", "altered or cut short"}},
      {"ManifestEmpty",
       [](const std::string& d) { write_text(d + "/manifest.json", ""); },
       {"manifest.json", "not a manifest"}},
      {"ManifestAltered",
       manifest_edit("\"version\": 2", "\"version\": 3", false),
       {"manifest.json", "altered or cut short"}},
      {"OtherVersion",
       manifest_edit("\"version\": 2", "\"version\": 3"),
       {"manifest.json", "version 3", "convert the model again"}},
      {"OtherKind",
       manifest_edit("moesaic packed model", "something else"),
       {"manifest.json", "kind", "something else"}},
      {"WeightMissing",
       manifest_edit("\"name\": \"layers.2.experts.5.up\"",
                     "\"name\": \"layers.2.experts.5.left\""),
       {"manifest.json", "\"layers.2.experts.5.up\" is missing"}},
      {"UnknownFormat",
       manifest_edit("\"name\": \"lm_head\", \"rows\": 2048, \"depth\": 192, \"format\": \"bf16\"",
                     "\"name\": \"lm_head\", \"rows\": 2048, \"depth\": 192, \"format\": \"int3\""),
       {"manifest.json", "format", "int3"}},
      {"OtherShape",
       manifest_edit("\"name\": \"lm_head\", \"rows\": 2048",
                     "\"name\": \"lm_head\", \"rows\": 2047"),
       {"manifest.json", "lm_head", "2047 x 192", "2048 x 192"}},
      {"OtherModel",
       [](const std::string& d) {
         write_text(d + "/config.json",
                    replaced(read_text(d + "/config.json"), "\"moe_intermediate_size\": 64",
                             "\"moe_intermediate_size\": 96"));
       },
       {"config.json", "altered since"}},
      {"BitFlipped",
       [](const std::string& d) {
         std::string text = read_text(d + "/" + kPackedShard);
         text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 32);
         write_text(d + "/" + kPackedShard, text);
       },
       {kPackedShard, "was altered", "checksum"},
       true},
      {"TokenizerAltered",
       [](const std::string& d) {
         write_text(d + "/tokenizer.json", read_text(d + "/tokenizer.json") + " ");
       },
       {"tokenizer.json", "altered since"}},
  };
}

class BrokenDirectoryTest : public testing::TestWithParam<BrokenDirectory> {};

TEST_P(BrokenDirectoryTest, IsRefusedWithOneLine) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_moesaic(convert_to(out, {"--expert-format", "int8"})).exit_code, 0);
  GetParam().break_it(out);
  const Arguments generate = {"generate", "-m", out, "-p", "In the", "-n", "1"};
  if (!GetParam().needs_verify) {
    expect_failure(run_moesaic(generate), 3, GetParam().texts);
    expect_failure(run_ranks(3, generate), 3, GetParam().texts);
    expect_failure(run_moesaic({"inspect", out}), 3, GetParam().texts);
    return;
  }
  EXPECT_EQ(run_moesaic(generate).exit_code, 0);
  Arguments verify = generate;
  verify.push_back("--verify");
  expect_failure(run_moesaic(verify), 3, GetParam().texts);
  expect_failure(run_ranks(3, verify), 3, GetParam().texts);
  expect_failure(run_moesaic({"inspect", out, "--verify"}), 3, GetParam().texts);
  expect_failure(run_ranks(3, {"inspect", out, "--verify"}), 3, GetParam().texts);
}

INSTANTIATE_TEST_SUITE_P(All, BrokenDirectoryTest, testing::ValuesIn(broken_directories()),
                         [](const auto& broken) { return broken.param.name; });

TEST(InspectErrors, RanksCompareTheBytesOfACheckpoint) {
  const Arguments verify = {"inspect", kDemo, "--verify"};
  const ProgramResult same = run_ranks(3, verify);
  EXPECT_EQ(same.exit_code, 0) << same.text();
  EXPECT_NE(same.err.find("all ranks have the same bytes"), std::string::npos) << same.text();
  const TemporaryDirectory directory;
  const std::string other = directory.path_of("other");
  copy_model("demo-model", other);
  std::string weights = read_text(other + "/model.safetensors");
  weights[weights.size() / 3] = static_cast<char>(weights[weights.size() / 3] ^ 1);
  write_text(other + "/model.safetensors", weights);
  expect_failure(run_different_ranks({verify, {"inspect", other, "--verify"}}), 5,
                 {"rank 1", "model.safetensors"});
}

TEST(ConvertErrors, RanksMustSeeTheSameDirectory) {
  const TemporaryDirectory directory;
  const std::string one = directory.path_of("one");
  const std::string two = directory.path_of("two");
  ASSERT_EQ(run_moesaic(convert_to(one, {"--expert-format", "int8"})).exit_code, 0);
  ASSERT_EQ(run_moesaic(convert_to(two, {"--expert-format", "int4"})).exit_code, 0);
  const auto generate = [](const std::string& model) {
    return Arguments{"generate", "-m", model, "-p", "In", "-n", "1"};
  };
  expect_failure(run_different_ranks({generate(one), generate(two)}), 5, {"rank 1", "model"});
}

}  // namespace
}  // namespace moesaic::test
