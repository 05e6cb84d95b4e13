#pragma once

#include <string>
#include <vector>

namespace moesaic::test {

/// The directories of tests/data/adapters, each of which drives all tests of adapters: PEFT's
/// logits, gradients and steps of training (tools/make_sft_goldens.py).
inline const std::vector<std::string> kGoldenAdapters = {
    "qwen3_moe",         "qwen2_moe-rslora-idle", "olmoe-patterns",     "mixtral-some",
    "granitemoe-joined", "mixtral-fused",         "glm4_moe",           "hy_v3-fused",
    "ernie4_5_moe",      "gpt_oss-attention",     "gpt_oss-experts4",   "gpt_oss-experts5",
    "deepseek_v3",       "deepseek_v3-fused",     "deepseek_v2-latent", "glm4_moe_lite-attention",
    "qwen3_next",        "qwen3_next-fused",      "qwen3_5_moe"};

}  // namespace moesaic::test
