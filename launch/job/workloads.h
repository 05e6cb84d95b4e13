#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "launch/job/memory_plan.h"
#include "launch/options/options.h"
#include "src/lora/adapter_set.h"
#include "src/model/model_config.h"

namespace moesaic {

/// Most tokens of one sequence, by --ctx-size or the model.
[[nodiscard]] std::int64_t context_limit(const Options& options, const ModelConfig& config);

/// What to say of `what`, which asks for sequences of so many tokens: that they are more than the
/// model was made for. Empty: they are not.
[[nodiscard]] std::string context_note(std::string_view what, std::int64_t tokens,
                                       const ModelConfig& config);

/// A context that is worth having, where memory is short.
inline constexpr std::int64_t kLeastContext = 1024;

/// Texts to be continued.
struct TextSizes {
  std::int64_t texts = 0;
  std::int64_t longest_prompt = 0;
  std::int64_t longest_text = 0;  // with what is generated
  std::int64_t most_samples = 1;  // of one prompt
};
/// Of a rank of moesaic generate. Samples of one prompt may go over the ranks unevenly, by no more
/// tokens than a prompt has (Schedule): there is room for one text more.
[[nodiscard]] Workload generate_workload(const Options& options, std::int64_t ranks,
                                         const TextSizes& sizes);

/// The same where texts come while others run: of any length up to the context, or, where memory is
/// short and nobody has said how long, up to what there is memory for.
[[nodiscard]] Workload open_workload(const Options& options, const ModelConfig& config);

/// Of a rank of moesaic serve: the same, and logits of whole prompts, which clients may want
/// echoed with their log-probabilities.
[[nodiscard]] Workload serve_workload(const Options& options, const ModelConfig& config);

/// Texts to be scored, in windows.
struct WindowSizes {
  std::int64_t windows = 0;
  std::int64_t tokens = 0;  // of all
  std::int64_t longest = 0;
};
/// What ranks of moesaic score work on at a time: windows enough to fill two batches, and memory
/// for as many of the longest as a batch has.
struct ScoreWork {
  std::int64_t parallel = 1;  // windows of a rank
  Workload work;              // of a rank; one beyond the windows has none and wants no logits
};
[[nodiscard]] ScoreWork score_workload(const Options& options, std::int64_t ranks,
                                       const WindowSizes& sizes);

/// What adapters make of a token between their two factors, in numbers.
struct InnerNumbers {
  std::int64_t kept = 0;     // by the MLPs of all layers, for their backward pass
  std::int64_t largest = 0;  // of these, the most of a layer
  std::int64_t working = 0;  // of a mixer's matrices and an MLP at a time, forward and back
};
[[nodiscard]] InnerNumbers inner_numbers(std::span<const AdapterSpec> adapters, std::int64_t topk);

/// Samples to be trained on.
struct SampleSizes {
  std::int64_t longest = 0;
  std::int64_t tokens = 0;          // of all
  std::int64_t adapter_bytes = 0;   // of this rank
  std::int64_t adapter_values = 0;  // numbers that are trained
  std::int64_t sum_bytes = 0;       // that their sums over ranks take, under way
  std::int64_t saving_bytes = 0;    // that a checkpoint takes to be written (saving_bytes())
  std::span<const AdapterSpec> adapters{};  // of all ranks
  int expert_ranks = 1;                     // that share the experts
  double dropout = 0;
  int threads = 1;  // of a rank
};
/// Of a rank of moesaic sft, which keeps what layers compute or, with `recomputes`, computes it
/// again.
[[nodiscard]] Workload sft_workload(const Options& options, const ModelConfig& config,
                                    const SampleSizes& sizes, bool recomputes);

}  // namespace moesaic
