#include "launch/job/workloads.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/rounding.h"
#include "kernels/kernel_table.h"
#include "kernels/outer_gemm.h"
#include "kernels/transposed_gemm.h"
#include "src/model/loss_head.h"

namespace moesaic {
namespace {

/// What backward passes of all kinds of mixers need for samples of such a length, however many.
std::int64_t mixer_scratch_bytes(const ModelConfig& config, const PassSize& pass) {
  std::set<const MixerKind*> mixers;
  for (const LayerConfig& layer : config.layers) mixers.insert(layer.mixer.get());
  std::int64_t total = 0;
  for (const MixerKind* mixer : mixers) total += mixer->backward_pass_bytes(pass);
  return total;
}

/// What a backward pass needs of a token: layers keep their input and more, some rows of gradients
/// lie between layers, and each kind of layer has memory of its own to work in, and to compute
/// again.
std::int64_t kept_token_bytes(const ModelConfig& config, bool recomputes, int expert_ranks) {
  constexpr std::int64_t kGradientRows = 4;
  const std::int64_t input = 4 * config.hidden_size;
  std::int64_t total = kGradientRows * input;
  std::set<std::pair<const MixerKind*, const FeedForwardKind*>> layers;
  std::set<const MixerKind*> mixers;
  std::set<const FeedForwardKind*> feed_forwards;
  for (const LayerConfig& layer : config.layers) {
    const MixerKind* const mixer = layer.mixer.get();
    const FeedForwardKind* const feed_forward = layer.feed_forward.get();
    const bool is_new = layers.emplace(mixer, feed_forward).second;
    total += input;
    if (is_new || !recomputes) {
      total += input + mixer->kept_bytes() + feed_forward->kept_bytes(expert_ranks);
    }
    if (mixers.insert(mixer).second) total += mixer->backward_bytes();
    if (feed_forwards.insert(feed_forward).second) total += feed_forward->backward_bytes();
  }
  return total;
}

/// Of the loss head besides logits: normed rows, and their gradients as they are packed for the
/// product with the output matrix.
std::int64_t loss_head_bytes(const ModelConfig& config, Precision precision, std::int64_t rows,
                             int threads) {
  const GemmKernel& kernel = find_gemm_kernel(supported_isas().back(), weight_format(precision));
  return 4 * rows * config.hidden_size +
         TransposedGemm::packed_bytes(
             kernel, {.rows = rows, .depth = config.vocab_size, .columns = config.hidden_size},
             threads);
}

/// Of the gradients of adapters: rows as they are packed for products over rows, of the adapter
/// that takes most; of experts with twice the average load.
std::int64_t gradient_product_bytes(const ModelConfig& config, Precision precision,
                                    const SampleSizes& sizes, std::int64_t tokens) {
  const GemmKernel& kernel = find_gemm_kernel(supported_isas().back(), weight_format(precision));
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int64_t> stacked;  // ranks
  std::int64_t most = 0;
  const auto meet = [&](std::int64_t rows, std::int64_t columns, std::int64_t rank) {
    most = std::max(most, OuterGemm::packed_bytes(kernel, {rows, columns, rank}, sizes.threads));
  };
  for (const AdapterSpec& adapter : sizes.adapters) {
    const AdapterSite& site = adapter.site;
    const std::int64_t rows = site.expert < 0 ? tokens : 2 * config.experts_per_token * tokens;
    std::int64_t rank = adapter.rank;  // those of a stacked matrix have one product for all their A
    if (site.stacked_rows > 0) rank = stacked[{site.layer, site.stacked_rows, site.in}] += rank;
    const std::int64_t heads = std::max<std::int64_t>(site.heads, 1);  // each with its rows
    meet(heads * rows, site.in, rank);
    meet(heads * rows, site.out / heads, adapter.rank);
  }
  return most;
}

/// And with dropout: what an adapter reads of its input, and the gradient that comes back to it, of
/// one product at a time; of experts with twice the average load.
std::int64_t dropout_token_bytes(const ModelConfig& config) {
  std::int64_t widest = 0;
  for (const LayerConfig& layer : config.layers) {
    const FeedForwardSizes sizes = layer.feed_forward->sizes();
    const std::int64_t expert = std::max(config.hidden_size, sizes.expert_width);
    widest = std::max({widest, config.hidden_size, layer.mixer->row_bytes() / 4, sizes.common_width,
                       2 * sizes.experts_per_token * expert});
  }
  return (4 + 4) * widest;
}

}  // namespace

std::int64_t context_limit(const Options& options, const ModelConfig& config) {
  return options.ctx_size > 0 ? options.ctx_size : config.max_position_embeddings;
}

std::string context_note(std::string_view what, std::int64_t tokens, const ModelConfig& config) {
  if (tokens <= config.max_position_embeddings) return "";
  return fmt::format(
      "{} is more than the {} tokens that the model was made for (max_position_embeddings)", what,
      config.max_position_embeddings);
}

Workload generate_workload(const Options& options, std::int64_t ranks, const TextSizes& sizes) {
  const std::int64_t uneven = sizes.most_samples > 1 ? 1 : 0;
  const std::int64_t sequences =
      std::min({options.parallel, sizes.texts, divide_up(sizes.texts, ranks) + uneven});
  return {.sequences = sequences,
          .capacity = sizes.longest_text,
          .batch_tokens =
              std::max(std::min(options.batch_size, sequences * sizes.longest_prompt), sequences),
          .logits_rows = sequences,
          .texts_tokens = sizes.texts * sizes.longest_text};
}

Workload open_workload(const Options& options, const ModelConfig& config) {
  const std::int64_t context = context_limit(options, config);
  return {.sequences = options.parallel,
          .capacity = context,
          .batch_tokens = std::max(options.batch_size, options.parallel),
          .logits_rows = options.parallel,
          .least_capacity = options.ctx_size > 0 ? 0 : std::min(context, kLeastContext)};
}

Workload serve_workload(const Options& options, const ModelConfig& config) {
  Workload work = open_workload(options, config);
  work.logits_rows = std::max(work.logits_rows, work.batch_tokens);
  return work;
}

ScoreWork score_workload(const Options& options, std::int64_t ranks, const WindowSizes& sizes) {
  const std::int64_t batch = options.batch_size;
  const std::int64_t wanted = 1 + divide_up(2 * batch * sizes.windows, sizes.tokens);
  const std::int64_t parallel = std::min(divide_up(sizes.windows, ranks), wanted);
  const std::int64_t chunk = std::min(batch, parallel * sizes.longest);
  return {.parallel = parallel,
          .work = {.sequences = std::min(parallel, 1 + divide_up(batch, sizes.longest)),
                   .capacity = sizes.longest,
                   .batch_tokens = chunk,
                   .logits_rows = chunk,
                   .texts_tokens = sizes.tokens}};
}

InnerNumbers inner_numbers(std::span<const AdapterSpec> adapters, std::int64_t topk) {
  struct Layer {
    std::int64_t matrices = 0;  // of its mixer
    std::int64_t common = 0;    // of an MLP that all tokens go through
    std::int64_t experts = 0;
  };
  std::map<std::int64_t, Layer> layers;
  std::map<std::pair<std::int64_t, MlpPart>, std::int64_t> experts;  // the most of any
  for (const AdapterSpec& adapter : adapters) {
    const AdapterSite& site = adapter.site;
    if (site.expert < 0) {
      Layer& layer = layers[site.layer];
      const std::int64_t heads = std::max<std::int64_t>(site.heads, 1);  // each has inner rows
      (site.part ? layer.common : layer.matrices) += heads * adapter.rank;
    } else {
      std::int64_t& most = experts[{site.layer, *site.part}];
      most = std::max(most, adapter.rank);
    }
  }
  for (const auto& [place, rank] : experts) layers[place.first].experts += topk * rank;
  InnerNumbers numbers;
  std::int64_t matrices = 0;
  std::int64_t mlp = 0;
  for (const auto& [number, layer] : layers) {
    numbers.kept += layer.common + layer.experts;
    numbers.largest = std::max(numbers.largest, layer.common + layer.experts);
    matrices = std::max(matrices, layer.matrices);
    mlp = std::max({mlp, layer.common, layer.experts});
  }
  numbers.working = 2 * (matrices + mlp);
  return numbers;
}

Workload sft_workload(const Options& options, const ModelConfig& config, const SampleSizes& sizes,
                      bool recomputes) {
  const std::int64_t tokens = std::max(options.batch_size, sizes.longest);
  constexpr std::int64_t kOptimizerBytes = 16;  // a gradient of 8 bytes, two moments of 4
  constexpr std::int64_t kGradientBytes = 4;    // that is written
  const InnerNumbers numbers = inner_numbers(sizes.adapters, config.experts_per_token);
  const std::int64_t inner = 4 * ((recomputes ? numbers.largest : numbers.kept) + numbers.working);
  const std::int64_t logits_rows = std::min(tokens, LossHead::rows_at_a_time(config.vocab_size));
  return {.sequences = 1,
          .capacity = tokens,
          .batch_tokens = tokens,
          .logits_rows = logits_rows,
          .texts_tokens = sizes.tokens,
          .adapter_bytes = sizes.adapter_bytes,
          .optimizer_bytes = kOptimizerBytes * sizes.adapter_values + sizes.sum_bytes +
                             sizes.saving_bytes +
                             (options.grad_out ? kGradientBytes * sizes.adapter_values : 0),
          .kept_bytes = tokens * (inner + kept_token_bytes(config, recomputes, sizes.expert_ranks) +
                                  (sizes.dropout > 0 ? dropout_token_bytes(config) : 0)) +
                        mixer_scratch_bytes(config, {.tokens = tokens,
                                                     .positions = sizes.longest,
                                                     .threads = sizes.threads}) +
                        loss_head_bytes(config, options.precision, logits_rows, sizes.threads) +
                        gradient_product_bytes(config, options.precision, sizes, tokens),
          .keeps_layers = !recomputes};
}

}  // namespace moesaic
