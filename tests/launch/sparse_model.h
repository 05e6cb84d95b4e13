#pragma once

#include <cstdint>
#include <string>

namespace moesaic::test {

/// Sizes of a model whose weights are 0, all or nearly.
struct SparseModel {
  std::string family = "qwen3_moe";  // or olmoe, mixtral, granitemoe
  std::int64_t layers = 2;
  std::int64_t hidden = 512;
  std::int64_t experts = 16;
  std::int64_t width = 1024;  // of an expert
  std::int64_t topk = 2;
  std::int64_t vocab = 4096;
  bool routes = false;    // the embedding and routers have random numbers, so that tokens differ
  bool computes = false;  // all matrices have, so that logits differ
};

/// Writes such a model in bf16, with the demo model's tokenizer. The file of weights has a hole in
/// the place of its data, so that a large model takes no disk. Every token chooses the experts 0,
/// 1, ...; with `routes` or `computes` any, each nearly as often as the others.
void write_sparse_model(const std::string& directory, const SparseModel& model);

}  // namespace moesaic::test
