#include "src/model/inventory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "src/checkpoint/matrix_source.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Names = std::vector<std::string>;

ModelNames names_of(const Checkpoint& checkpoint, const std::string& directory) {
  return find_model_names(read_model_config(directory),
                          [&](std::string_view name) { return checkpoint.contains(name); });
}

Inventory inventory_of(const std::string& directory) {
  const Checkpoint checkpoint = Checkpoint::open(directory);
  return take_inventory(checkpoint, names_of(checkpoint, directory));
}

std::vector<std::string> fixture_directories() {
  std::vector<std::string> directories;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MOESAIC_TEST_DATA) + "/models")) {
    if (entry.is_directory()) directories.push_back(entry.path().string());
  }
  return directories;
}

TEST(Inventory, every_model_of_transformers_is_whole_and_has_the_shapes_that_its_config_says) {
  const auto directories = fixture_directories();
  EXPECT_GE(directories.size(), 20U);
  for (const std::string& directory : directories) {
    SCOPED_TRACE(directory);
    const Checkpoint checkpoint = Checkpoint::open(directory);
    const ModelNames names = names_of(checkpoint, directory);
    const Inventory inventory = take_inventory(checkpoint, names);
    EXPECT_EQ(inventory.missing, Names{});
    EXPECT_EQ(inventory.unknown, Names{});
    std::int64_t unread = 0;  // what reads images, of one fixture
    for (const std::string& name : inventory.ignored) {
      EXPECT_TRUE(name.starts_with("model.visual.")) << name;
      unread += std::ssize(checkpoint.at(name).bytes);
    }
    EXPECT_EQ(unread > 0, directory.ends_with("/qwen3_5_moe-v5"));
    std::int64_t sum = unread;
    std::int64_t slices = unread;
    for (const auto& [dtype, bytes] : inventory.expert_bytes) sum += bytes;
    for (const auto& [dtype, bytes] : inventory.non_expert_bytes) sum += bytes;
    EXPECT_EQ(sum, checkpoint.total_bytes());
    // Together the slices are the checkpoint: each one opens, and their bytes add up, but for what
    // quantised ones read when they are opened. Where two take turns, each touches those of both.
    for_each_slice(names, [&](const TensorSlice& slice, bool) {
      const MatrixSource source(checkpoint, slice);
      const TensorView* const tensor = checkpoint.find(slice.tensor);
      if (slice.row_step != 1 && tensor != nullptr) {
        slices += slice.rows * slice.cols * dtype_bytes(tensor->dtype);
        return;
      }
      source.for_each_bytes(0, source.rows(),
                            [&](std::span<const std::byte> bytes) { slices += std::ssize(bytes); });
    });
    if (checkpoint.quantization().method.empty()) {
      EXPECT_EQ(slices, checkpoint.total_bytes());
    }
  }
}

TEST(Inventory, counts_the_bytes_of_experts_and_of_the_rest) {
  const test::TemporaryDirectory directory;
  auto tensors = test::tiny_tensors();
  for (auto& tensor : tensors) {
    if (tensor.name == "lm_head.weight") tensor.dtype = DType::f32;
  }
  test::write_tiny_checkpoint(directory.path());
  test::write_tiny_safetensors(directory.path_of("model.safetensors"), tensors);
  const Inventory inventory = inventory_of(directory.path());
  EXPECT_EQ(inventory.expert_bytes, (std::map<DType, std::int64_t>{{DType::bf16, 2 * 2 * 36}}));
  EXPECT_EQ(inventory.non_expert_bytes,
            (std::map<DType, std::int64_t>{
                {DType::bf16, 2 * (32 + 3 * 4 + 16 + 8 + 8 + 16 + 4 + 8)}, {DType::f32, 4 * 32}}));
}

TEST(Inventory, names_what_is_missing_and_what_is_unknown) {
  const test::TemporaryDirectory directory;
  auto tensors = test::tiny_tensors();
  std::erase_if(tensors, [](const test::TinyTensor& tensor) {
    return tensor.name.ends_with("experts.1.up_proj.weight") || tensor.name == "model.norm.weight";
  });
  tensors.push_back({"model.layers.1.mlp.gate.weight", DType::bf16, {2, 4}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {1}});
  test::write_tiny_checkpoint(directory.path());
  test::write_tiny_safetensors(directory.path_of("model.safetensors"), tensors);
  const Inventory inventory = inventory_of(directory.path());
  EXPECT_EQ(inventory.missing,
            (Names{"model.layers.0.mlp.experts.1.up_proj.weight", "model.norm.weight"}));
  EXPECT_EQ(inventory.unknown, Names{"model.layers.1.mlp.gate.weight"});
  EXPECT_EQ(inventory.ignored, Names{"model.layers.0.self_attn.rotary_emb.inv_freq"});
}

TEST(Inventory, layers_that_predict_further_tokens_and_what_reads_images_are_of_no_use) {
  const test::TemporaryDirectory directory;
  auto tensors = test::tiny_tensors();
  const Names more = {"mm_projector.pre_norm.weight",    "model.layers.1.eh_proj.weight",
                      "model.layers.1.mlp.gate.weight",  "model.layers.2.mlp.gate.weight",
                      "vision_tower.patch_embed.weight", "visual.pos_embed.weight",
                      "mtp.layers.0.mlp.gate.weight",    "model.mtp_block.0.norm.weight"};
  for (const std::string& name : more) tensors.push_back({name, DType::bf16, {2, 4}});
  test::write_tiny_checkpoint(directory.path());
  test::write_tiny_safetensors(directory.path_of("model.safetensors"), tensors);
  const Inventory inventory = inventory_of(directory.path());
  EXPECT_EQ(inventory.missing, Names{});
  EXPECT_EQ(inventory.ignored,
            (Names{more[0], more[1], more[2], more[7], more[6], more[4], more[5]}));
  EXPECT_EQ(inventory.unknown, Names{more[3]}) << "no such layer is announced";
}

TEST(Inventory, scales_belong_to_their_matrix) {
  const test::TemporaryDirectory directory;
  auto tensors = test::tiny_tensors();
  const std::string expert = "model.layers.0.mlp.experts.0.";
  for (auto& tensor : tensors) {
    if (tensor.name == expert + "up_proj.weight") {
      tensor = {expert + "up_proj.weight_packed", DType::u8, {3, 2}};
    }
    if (tensor.name == expert + "down_proj.weight") tensor.dtype = DType::f8_e4m3;
  }
  tensors.push_back({expert + "down_proj.weight_scale", DType::f32, {4, 1}});
  tensors.push_back({expert + "down_proj.input_scale", DType::f32, {}});
  tensors.push_back({"model.layers.0.self_attn.k_proj.k_scale", DType::f32, {}});
  test::write_tiny_checkpoint(directory.path());
  test::write_tiny_safetensors(directory.path_of("model.safetensors"), tensors);
  const Inventory inventory = inventory_of(directory.path());
  EXPECT_EQ(inventory.missing, Names{expert + "up_proj.weight_scale"});
  EXPECT_EQ(inventory.unknown, Names{});
  EXPECT_EQ(inventory.ignored, Names{"model.layers.0.self_attn.k_proj.k_scale"});
  EXPECT_EQ(
      inventory.expert_bytes,
      (std::map<DType, std::int64_t>{
          {DType::bf16, 2 * 4 * 12}, {DType::u8, 6}, {DType::f8_e4m3, 12}, {DType::f32, 20}}));
}

TEST(Inventory, a_head_beside_a_tied_embedding_is_of_no_use) {
  const test::TemporaryDirectory directory;
  test::write_tiny_checkpoint(directory.path());
  test::write_text(directory.path_of("config.json"),
                   test::replaced(test::tiny_config(), "{", R"({"tie_word_embeddings": true, )"));
  const Inventory inventory = inventory_of(directory.path());
  EXPECT_EQ(inventory.unknown, Names{});
  EXPECT_EQ(inventory.ignored, Names{"lm_head.weight"});
}

}  // namespace
}  // namespace moesaic
