#include "launch/job/gpu_choice.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "launch/job/largest_value.h"
#include "launch/job/placement_choice.h"
#include "launch/options/option_table.h"
#include "src/parallel/expert_record.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostFileBytes = std::int64_t{64} << 20;

std::vector<std::int64_t> layer_experts(const ExpertSizes& sizes) {
  std::vector<std::int64_t> experts;
  for (const auto& layer : sizes.bytes) experts.push_back(std::ssize(layer));
  return experts;
}

std::int64_t most_experts(const ExpertSizes& sizes) {
  const std::vector<std::int64_t> experts = layer_experts(sizes);
  return experts.empty() ? 0 : std::ranges::max(experts);
}

/// Layers may differ in whether they have experts, not in which kind.
void require_gpu_experts(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const std::string missing = layer.feed_forward->missing_on_gpus();
    require(missing.empty(), ErrorKind::usage, "--gpu-experts with family {}: {}", config.family,
            missing);
  }
}

ExpertMask read_mask(const std::string& text, const std::vector<std::int64_t>& experts) {
  if (text == "all") return ExpertMask::all(experts);
  const std::optional<std::int64_t> count = read_number(text);
  if (!count) {
    require(is_meant_as_file(text), ErrorKind::usage,
            "--gpu-experts: \"{}\" is neither none, all, auto, a number nor a file", text);
    return ExpertMask::read(experts, Json::read_file(text, kMostFileBytes));
  }
  const std::int64_t most = std::ranges::max(experts);
  require(*count >= 0 && *count <= most, ErrorKind::usage,
          "--gpu-experts {}: a layer of this model has {} experts", *count, most);
  return ExpertMask::spread(experts, *count);
}

/// By id, or those of most rows first.
std::vector<std::vector<std::int64_t>> read_order(const std::optional<std::string>& load,
                                                  const ModelConfig& config) {
  const std::vector<std::int64_t> experts = experts_of_layers(config);
  std::vector<std::vector<std::int64_t>> order;
  for (const std::int64_t count : experts) {
    std::vector<std::int64_t>& ids = order.emplace_back(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
  }
  if (!load) return order;
  const ExpertRecord record = read_expert_record(*load);
  const ModelExperts model = experts_of(config);
  require_model(record, model);
  for (std::size_t i = 0; i < model.with.size(); ++i) {
    std::ranges::stable_sort(order[static_cast<std::size_t>(model.with[i])],
                             [&rows = record.rows[i]](std::int64_t a, std::int64_t b) {
                               return rows[static_cast<std::size_t>(a)] >
                                      rows[static_cast<std::size_t>(b)];
                             });
  }
  return order;
}

/// The first `count` own experts of each layer.
ExpertMask first_experts(const ExpertSizes& sizes,
                         const std::vector<std::vector<std::int64_t>>& order, std::int64_t count) {
  ExpertMask mask(layer_experts(sizes));
  for (std::size_t layer = 0; layer < order.size(); ++layer) {
    std::int64_t taken = 0;
    for (const std::int64_t expert : order[layer]) {
      const auto number = static_cast<std::int64_t>(layer);
      if (!sizes.own.contains(number, expert) || taken == count) continue;
      mask.add(number, expert);
      ++taken;
    }
  }
  return mask;
}

}  // namespace

std::vector<std::int64_t> experts_of_layers(const ModelConfig& config) {
  std::vector<std::int64_t> experts;
  for (const LayerConfig& layer : config.layers) {
    experts.push_back(layer.feed_forward->sizes().experts);
  }
  return experts;
}

GpuWish read_gpu_wish(const Options& options, const ModelConfig& config) {
  require_gpu_experts(config);
  require(options.int4_activations == Int4Activations::bf16, ErrorKind::usage,
          "--gpu-experts does not go with --int4-activations int8: GPUs take bf16 rows");
  const bool is_auto = options.fits_gpu_experts();
  const std::vector<std::int64_t> experts = experts_of_layers(config);
  GpuWish wish{.kernel = options.gpu_kernel};
  if (is_auto) {
    wish.order = read_order(options.expert_load, config);
  } else {
    wish.mask = read_mask(options.gpu_experts, experts);
  }
  return wish;
}

void require_gpu_options(const Options& options) {
  require(!options.expert_load || options.fits_gpu_experts(), ErrorKind::usage,
          "--expert-load is for --gpu-experts auto");
  if (options.gpu_kernel == GpuKernel::mma) return;
  require(options.has_gpu_experts(), ErrorKind::usage,
          "--gpu-kernel cutlass is for experts on GPUs: --gpu-experts says which");
  require(options.numerics == Numerics::native, ErrorKind::usage,
          "--gpu-kernel cutlass has bits of its own, which --numerics portable rules out");
  require(options.nvfp4_activations == Nvfp4Activations::nvfp4, ErrorKind::usage,
          "--gpu-kernel cutlass multiplies activations in nvfp4: it wants --nvfp4-activations "
          "nvfp4");
}

void require_gpu_uses(const Command& command) {
  const Options& options = command.options;
  const auto require_used = [&](bool is_used, std::string_view option, std::string_view by) {
    if (is_used || find_option(option, command.verb) == nullptr) return;
    require(source_of(command, option) != OptionSource::command_line, ErrorKind::usage,
            "--{} is for {}", option, by);
  };
  require_used(options.has_gpu_experts(), "gpu-memory", "experts on GPUs: --gpu-experts");
  require_used(options.gpu_kernel == GpuKernel::cutlass, "cutlass", "--gpu-kernel cutlass");
  require_used(options.transport == Transport::nccl, "nccl", "--transport nccl");
}

std::optional<std::int64_t> read_number(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

OwnExperts own_experts(const HeldExperts& own, const ExpertMask& mask, std::int64_t layer) {
  OwnExperts count;
  for (std::int64_t expert = 0; expert < mask.num_experts(layer); ++expert) {
    if (!own.contains(layer, expert)) continue;
    ++count.all;
    if (mask.contains(layer, expert)) ++count.chosen;
  }
  return count;
}

std::int64_t bytes_of(const ExpertMask& mask, const ExpertSizes& sizes) {
  std::int64_t bytes = 0;
  for (std::int64_t layer = 0; layer < mask.num_layers(); ++layer) {
    for (std::int64_t expert = 0; expert < mask.num_experts(layer); ++expert) {
      if (!mask.contains(layer, expert)) continue;
      bytes += sizes.bytes[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
    }
  }
  return bytes;
}

std::int64_t largest_spread(const ExpertSizes& sizes, std::int64_t bytes) {
  const std::vector<std::int64_t> experts = layer_experts(sizes);
  // Not the first that does not fit: which own experts are meant changes with the number.
  for (std::int64_t count = most_experts(sizes); count > 0; --count) {
    if (bytes_of(ExpertMask::spread(experts, count), sizes) <= bytes) return count;
  }
  return 0;
}

std::int64_t least_bytes(const ExpertSizes& sizes,
                         const std::vector<std::vector<std::int64_t>>& order) {
  return bytes_of(first_experts(sizes, order, 1), sizes);
}

ExpertMask fill(const ExpertSizes& sizes, const std::vector<std::vector<std::int64_t>>& order,
                std::int64_t bytes) {
  const auto fits = [&](std::int64_t count) {
    return bytes_of(first_experts(sizes, order, count), sizes) <= bytes;
  };
  return first_experts(sizes, order, largest_value(most_experts(sizes), fits));
}

ExpertMask choose_experts(const GpuWish& wish, const ExpertSizes& sizes, std::int64_t bytes) {
  return wish.mask ? *wish.mask : fill(sizes, wish.order, bytes);
}

}  // namespace moesaic
