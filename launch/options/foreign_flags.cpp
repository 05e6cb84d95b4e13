#include "launch/options/foreign_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "launch/options/option_table.h"

namespace moesaic {
namespace {

struct ForeignFlag {
  std::string_view flag;  // '_' counts as '-'
  std::string_view hint;
};

constexpr std::string_view kTemperature = "it is --temp here";
constexpr std::string_view kPredict = "it is -n or --predict here";
constexpr std::string_view kLayersOnGpu =
    "experts go to GPUs, whole layers do not: --gpu-experts all, or N of each layer";
constexpr std::string_view kChat =
    "moesaic chat holds a conversation, moesaic generate --chat answers one turn";
constexpr std::string_view kContext = "it is -c or --ctx-size here";
constexpr std::string_view kDownload =
    "nothing is downloaded: -m names a directory (hf download NAME --local-dir DIR)";

constexpr auto kForeignFlags = std::to_array<ForeignFlag>({
    {"-temp", kTemperature},
    {"--temperature", kTemperature},
    {"--max-tokens", kPredict},
    {"--max-new-tokens", kPredict},
    {"--n-predict", kPredict},
    {"--n", "-n is the number of tokens, --num-return the number of texts"},
    {"--num-return-sequences", "it is --num-return here"},
    {"--repetition-penalty", "it is --repeat-penalty here"},
    {"--reverse-prompt", "it is --stop here"},
    {"--max-model-len", kContext},
    {"--context-length", kContext},
    {"-cnv", kChat},
    {"--conversation", kChat},
    {"--interactive", kChat},
    {"-ngl", kLayersOnGpu},
    {"--gpu-layers", kLayersOnGpu},
    {"--n-gpu-layers", kLayersOnGpu},
    {"--tensor-parallel-size", "mpirun -n N gives the number of ranks"},
    {"-hf", kDownload},
    {"--hf-repo", kDownload},
    {"--learning-rate", "it is --lr here"},
    {"--lr-scheduler-type", "it is --schedule here"},
    {"--num-train-epochs", "it is --epochs here"},
    {"--max-grad-norm", "it is --clip here"},
    {"--lora-r", "it is --lora-rank here"},
    {"--lora-target-modules", "it is --lora-targets here"},
    {"--max-seq-length", kContext},
    {"--per-device-train-batch-size",
     "--global-batch-size counts the samples of a step on all ranks"},
    {"--gradient-accumulation-steps",
     "--global-batch-size counts the samples of a step on all ranks"},
    {"--train-file", "it is --data here"},
    {"--output-dir", "it is -o or --output here"},
    {"--model-name-or-path", "it is -m or --model here"},
});

}  // namespace

std::string_view foreign_flag_hint(std::string_view flag) noexcept {
  const auto same = [](char a, char b) { return (a == '_' ? '-' : a) == b; };
  const auto found = std::ranges::find_if(kForeignFlags, [&](const ForeignFlag& foreign) {
    return std::ranges::equal(flag, foreign.flag, same);
  });
  return found == kForeignFlags.end() ? "" : found->hint;
}

std::string other_verbs_hint(std::string_view name) {
  constexpr std::size_t kMostNamed = 4;
  const std::string_view instead =
      name == "resume" ? ", and what --out or --logprobs-out names goes on by itself" : "";
  std::vector<std::string_view> verbs;
  for (const VerbRow& row : verb_table()) {
    const OptionRow* const option = find_option(name, row.verb);
    if (option != nullptr && takes(row.verb, *option)) verbs.push_back(row.name);
  }
  if (verbs.empty()) return "";
  if (verbs.size() <= kMostNamed)
    return fmt::format("; it is one of {}{}", fmt::join(verbs, ", "), instead);
  return fmt::format("; it is one of {} and {} others{}",
                     fmt::join(verbs.begin(), verbs.begin() + kMostNamed - 1, ", "),
                     verbs.size() - kMostNamed + 1, instead);
}

}  // namespace moesaic
