#include "src/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::TemporaryDirectory;
using test::write_text;
using test::write_tiny_safetensors;

std::string open_error(const std::string& path) {
  return error_message([&] { (void)Checkpoint::open(path); });
}

/// config.json and two shards, "a" in the first and "b", "c" in the second.
void write_shards(const TemporaryDirectory& directory) {
  write_text(directory.path_of("config.json"), "{}");
  write_tiny_safetensors(directory.path_of("m-1.safetensors"), {{"a", DType::f32, {2}}});
  write_tiny_safetensors(directory.path_of("m-2.safetensors"),
                         {{"c", DType::bf16, {3}}, {"b", DType::u8, {5}}});
  write_text(directory.path_of("model.safetensors.index.json"),
             R"({"metadata": {"total_size": 19}, "weight_map": {"a": "m-1.safetensors",)"
             R"( "b": "m-2.safetensors", "c": "m-2.safetensors"}})");
}

void edit_index(const TemporaryDirectory& directory, std::string_view from, std::string_view to) {
  const std::string path = directory.path_of("model.safetensors.index.json");
  write_text(path, test::replaced(test::read_text(path), from, to));
}

TEST(Checkpoint, opens_a_single_file) {
  const TemporaryDirectory directory;
  test::write_tiny_checkpoint(directory.path());
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  EXPECT_EQ(checkpoint.tensors().size(), test::tiny_tensors().size());
  EXPECT_EQ(checkpoint.num_files(), 1);
  EXPECT_EQ(checkpoint.at("model.norm.weight").shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(error_message([&] { (void)checkpoint.at("gone"); }),
            directory.path() + ": tensor \"gone\" is missing");
}

TEST(Checkpoint, opens_shards_and_sorts_names) {
  const TemporaryDirectory directory;
  write_shards(directory);
  Checkpoint opened = Checkpoint::open(directory.path());
  const Checkpoint checkpoint = std::move(opened);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(checkpoint.total_bytes(), 8 + 6 + 5);
  EXPECT_EQ(checkpoint.num_files(), 2);
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find("b")->file, directory.path_of("m-2.safetensors"));
  EXPECT_EQ(static_cast<int>(checkpoint.find("b")->bytes[0]), 6);
  EXPECT_TRUE(checkpoint.unindexed_names().empty());
}

TEST(Checkpoint, leaves_out_tensors_that_the_index_does_not_name) {
  const TemporaryDirectory directory;
  write_shards(directory);
  edit_index(directory, R"(, "c": "m-2.safetensors")", "");
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  EXPECT_FALSE(checkpoint.contains("c"));
  EXPECT_EQ(checkpoint.unindexed_names(), std::vector<std::string>{"c"});
  EXPECT_EQ(checkpoint.total_bytes(), 8 + 5);
}

TEST(Checkpoint, refuses_shards_that_contradict_the_index) {
  const TemporaryDirectory directory;
  write_shards(directory);
  std::filesystem::remove(directory.path_of("m-2.safetensors"));
  EXPECT_EQ(open_error(directory.path()),
            directory.path() +
                ": shard m-2.safetensors is missing (1 of 2 shards are); "
                "model.safetensors.index.json names it");
  write_tiny_safetensors(directory.path_of("m-2.safetensors"), {{"b", DType::u8, {5}}});
  EXPECT_EQ(open_error(directory.path()),
            directory.path_of("m-2.safetensors") +
                ": tensor \"c\" is not in it, though model.safetensors.index.json says so");
  write_tiny_safetensors(directory.path_of("m-2.safetensors"),
                         {{"b", DType::u8, {5}}, {"c", DType::u8, {1}}, {"a", DType::u8, {1}}});
  EXPECT_EQ(open_error(directory.path()), directory.path_of("m-2.safetensors") +
                                              ": tensor \"a\" is also in " +
                                              directory.path_of("m-1.safetensors"));
}

TEST(Checkpoint, refuses_a_bad_index) {
  const TemporaryDirectory directory;
  const std::string index = directory.path_of("model.safetensors.index.json");
  write_shards(directory);
  edit_index(directory, R"("a": "m-1.safetensors")", R"("a": "../m-1.safetensors")");
  EXPECT_EQ(open_error(directory.path()),
            index + ": weight_map.a: shard \"../m-1.safetensors\" is no plain file name");
  write_text(index, R"({"weight_map": {}})");
  EXPECT_EQ(open_error(directory.path()), index + ": weight_map is empty");
  write_text(index, R"({"weight_map": ["a"]})");
  EXPECT_EQ(open_error(directory.path()), index + ": weight_map: expected an object");
  write_text(index, R"({"weight_map": {"a": 1}})");
  EXPECT_EQ(open_error(directory.path()),
            index + ": weight_map.a: expected a string, found number 1");
  write_text(index, R"({})");
  EXPECT_EQ(open_error(directory.path()), index + ": field \"weight_map\" is missing");
  write_text(index, R"({"weight_map": )");
  EXPECT_TRUE(open_error(directory.path()).starts_with(index + ": not valid JSON"));
}

TEST(Checkpoint, says_what_is_no_checkpoint) {
  const TemporaryDirectory directory;
  const std::string path = directory.path();
  EXPECT_EQ(open_error(path + "/gone"), path + "/gone: no such directory");
  write_text(path + "/file", "");
  EXPECT_EQ(open_error(path + "/file"),
            path +
                "/file: not a directory; a checkpoint is a directory with config.json and "
                "safetensors files");
  EXPECT_EQ(open_error(path), path + ": not a checkpoint: no config.json in it");
  const std::string neither =
      path + ": not a checkpoint: neither model.safetensors nor model.safetensors.index.json in it";
  write_text(path + "/config.json", "{}");
  EXPECT_EQ(open_error(path), neither);
}

TEST(Checkpoint, says_what_to_do_with_other_formats) {
  const TemporaryDirectory directory;
  const std::string path = directory.path();
  write_text(path + "/pytorch_model.bin", "");
  EXPECT_EQ(open_error(path),
            path +
                ": not a checkpoint: no config.json in it; pytorch_model.bin holds PyTorch's "
                "pickled weights, which are not read: load the model with transformers and save "
                "it with save_pretrained");
  write_text(path + "/config.json", "{}");
  EXPECT_NE(open_error(path).find("save_pretrained"), std::string::npos);
  write_text(path + "/model-Q4_K_M.gguf", "");
  EXPECT_NE(open_error(path).find("; model-Q4_K_M.gguf is a GGUF file, which is not read: get the "
                                  "Hugging Face form of this model"),
            std::string::npos);
  write_text(path + "/model-00001-of-00002.safetensors", "");
  EXPECT_NE(open_error(path).find("; model-00001-of-00002.safetensors is there, but shards need "
                                  "their index: copy model.safetensors.index.json too"),
            std::string::npos);
  write_text(path + "/adapter_config.json", "{}");
  EXPECT_NE(open_error(path).find("; it is an adapter: --lora " + path + " adds it"),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
