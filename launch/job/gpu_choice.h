#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/options/options.h"
#include "src/model/model_config.h"
#include "src/moe/expert_mask.h"

namespace moesaic {

/// What --gpu-experts says, read and checked.
struct GpuWish {
  std::optional<ExpertMask> mask{};  // of all ranks; nothing: auto
  std::vector<std::vector<std::int64_t>>
      order{};  // auto: [layers] ids, the first to be taken first
  GpuKernel kernel = GpuKernel::mma;
};

/// Throws Error{usage} for options of GPUs that others leave nothing to do.
void require_gpu_options(const Options& options);
/// Throws Error{usage} for what the command line says of GPUs where nothing uses it.
void require_gpu_uses(const Command& command);

/// [layers] experts of each layer.
[[nodiscard]] std::vector<std::int64_t> experts_of_layers(const ModelConfig& config);

/// Not for "none". Throws Error{usage} for what it cannot be and for options that do not go with
/// it, Error{file} for what the file has.
[[nodiscard]] GpuWish read_gpu_wish(const Options& options, const ModelConfig& config);

/// What is a number as a whole; nothing for other words.
[[nodiscard]] std::optional<std::int64_t> read_number(const std::string& text);

/// Of the experts of a layer that a rank has.
struct OwnExperts {
  std::int64_t all = 0;
  std::int64_t chosen = 0;  // for its GPU
};
[[nodiscard]] OwnExperts own_experts(const HeldExperts& own, const ExpertMask& mask,
                                     std::int64_t layer);

/// Packed bytes of a rank's experts.
struct ExpertSizes {
  HeldExperts own;
  std::vector<std::vector<std::int64_t>> bytes;  // [layers][experts], 0 for those of other ranks
};
/// Of the own experts that are in `mask`.
[[nodiscard]] std::int64_t bytes_of(const ExpertMask& mask, const ExpertSizes& sizes);
/// The largest N whose spread mask has own experts of at most so many bytes.
[[nodiscard]] std::int64_t largest_spread(const ExpertSizes& sizes, std::int64_t bytes);
/// Of the first own expert of each layer in that order: the least that fill() can take.
[[nodiscard]] std::int64_t least_bytes(const ExpertSizes& sizes,
                                       const std::vector<std::vector<std::int64_t>>& order);
/// The own experts of each layer, as many of each, in their order, as so many bytes have room for.
[[nodiscard]] ExpertMask fill(const ExpertSizes& sizes,
                              const std::vector<std::vector<std::int64_t>>& order,
                              std::int64_t bytes);
/// What the wish comes to on a rank whose GPU has room for so many bytes of experts: its mask, or
/// what fill() finds.
[[nodiscard]] ExpertMask choose_experts(const GpuWish& wish, const ExpertSizes& sizes,
                                        std::int64_t bytes);

}  // namespace moesaic
