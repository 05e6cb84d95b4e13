// What kinds of layers answer to the rest of the program.

#include <gtest/gtest.h>

#include "src/model/feed_forward.h"
#include "src/model/gqa_kind.h"
#include "src/model/mla_kind.h"

namespace moesaic {
namespace {

// Two windows of the same attention: 4 heads of 32, 2 for keys and values.
GqaKind attention(std::int64_t window) {
  return GqaKind(
      {.hidden = 10, .num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .window = window});
}

/// Elements of all parts of the weights of one role.
std::int64_t elements(const std::vector<NamedWeight>& weights, WeightRole role) {
  std::int64_t sum = 0;
  for (const NamedWeight& weight : weights) {
    if (weight.role != role) continue;
    for (const TensorSlice& part : weight.parts) sum += part.rows * part.cols;
  }
  return sum;
}

TEST(LayerKinds, AttentionKeepsKeysAndValuesOfEveryKvHead) {
  EXPECT_EQ(attention(0).cache(Precision::bf16).page_bytes, 2 * (2 * 32) * 64 * 2);
  EXPECT_EQ(attention(0).cache(Precision::f32).page_bytes, 2 * (2 * 32) * 64 * 4);
  EXPECT_EQ(attention(0).cache(Precision::bf16).state_bytes, 0);
  // Rotated queries and attended rows, keys and values, and a number a head.
  EXPECT_EQ(attention(0).kept_bytes(), 4 * (2 * 128 + 2 * 64 + 4));
}

TEST(LayerKinds, AWindowBoundsTheWorkNotThePages) {
  // Ten tokens see 55 keys, with a window of 4 they see 1 + 2 + 3 + 7 * 4.
  EXPECT_DOUBLE_EQ(attention(0).work(Precision::bf16, 10).flops, 4.0 * 128 * 55);
  EXPECT_DOUBLE_EQ(attention(4).work(Precision::bf16, 10).flops, 4.0 * 128 * 34);
  EXPECT_DOUBLE_EQ(attention(4).work(Precision::f32, 10).cache_bytes, 2.0 * 64 * 4 * 34);
  EXPECT_EQ(attention(4).cache(Precision::bf16).page_bytes,
            attention(0).cache(Precision::bf16).page_bytes);
}

TEST(LayerKinds, AnglesAreThoseOfWhatIsRotated) {
  GqaConfig config = attention(0).config();
  config.rope.rotary_dim = 12;
  EXPECT_EQ(GqaKind(config).token_numbers().angles, 6);
  EXPECT_EQ(MlaKind({.nope_dim = 16, .rope_dim = 10}).token_numbers().angles, 5);
}

TEST(LayerKinds, LengthsOfPromptsMatterToTwoScalings) {
  for (const RopeType type : {RopeType::plain, RopeType::linear, RopeType::dynamic, RopeType::yarn,
                              RopeType::llama3, RopeType::longrope}) {
    GqaConfig config = attention(0).config();
    config.rope.type = type;
    EXPECT_EQ(GqaKind(config).depends_on_prompt_length(),
              type == RopeType::dynamic || type == RopeType::longrope);
  }
}

TEST(LayerKinds, FeedForwardPartsNameTheirWeights) {
  const TensorExists none = [](std::string_view) { return false; };
  const LayerTensors tensors("model.layers.0.", none);
  const PlainMlpKind plain(10, 7);
  EXPECT_EQ(elements(plain.weights(tensors), WeightRole::dense), 3 * 10 * 7);
  EXPECT_EQ(plain.kept_bytes(1), 4 * 2 * 7);
  MoeConfig config{.hidden = 10, .experts = 5, .expert_width = 3, .shared_width = 7};
  config.gates_shared = true;
  config.router.topk = 2;
  const MoeKind moe(config);
  EXPECT_EQ(elements(moe.weights(tensors), WeightRole::expert), 5 * 3 * 10 * 3);
  EXPECT_EQ(elements(moe.weights(tensors), WeightRole::dense), 3 * 10 * 7 + 10 + 5 * 10);
  // Of rows from other ranks a token has no more than experts.
  EXPECT_EQ(moe.kept_bytes(2) - moe.kept_bytes(1), 4 * 10);
  EXPECT_EQ(moe.kept_bytes(9), moe.kept_bytes(3));
  config.gates_shared = false;
  config.choice_bias = true;
  EXPECT_EQ(elements(MoeKind(config).weights(tensors), WeightRole::dense), 3 * 10 * 7 + 5 * 10 + 5);
  config.choice_bias = false;
  config.shared_width = 0;
  EXPECT_EQ(elements(MoeKind(config).weights(tensors), WeightRole::dense), 5 * 10);
  EXPECT_LT(MoeKind(config).row_bytes(), moe.row_bytes());
}

}  // namespace
}  // namespace moesaic
