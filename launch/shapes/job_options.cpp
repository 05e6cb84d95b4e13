#include "launch/shapes/job_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "launch/job/workloads.h"

namespace moesaic {
namespace {

using Jobs = std::uint32_t;

constexpr Jobs bit(StudyJob job) {
  return 1U << static_cast<unsigned>(job);
}

/// Forward passes of a model.
constexpr Jobs kPasses = bit(StudyJob::prompt) | bit(StudyJob::generate);
constexpr Jobs kModels = kPasses | bit(StudyJob::sft);
constexpr Jobs kShapes = bit(StudyJob::layer) | bit(StudyJob::exchange);
/// All but exchanges alone.
constexpr Jobs kComputing = kModels | bit(StudyJob::layer);
/// Those that take many tokens of a sequence at once.
constexpr Jobs kManyTokens = (kModels | kShapes) & ~bit(StudyJob::generate);

struct JobOption {
  std::string_view name;
  Jobs jobs;
};

/// options_of_some_jobs(), and those that change no point's result.
constexpr auto kJobOptions = std::to_array<JobOption>({
    {"print-binding", 0},
    {"timeout", 0},
    {"trace-dir", 0},
    {"verify", 0},
    {"model", kModels},
    {"text", kModels},
    {"precision", kModels},
    {"dense-format", kModels},
    {"head-format", kModels},
    {"mmap", kModels},
    {"lora", kModels},
    {"placement", kModels},
    {"activation-scales", kPasses},
    {"defer", kPasses},
    {"wire", kPasses},
    {"combine", kPasses},
    {"half-batches", kPasses},
    {"expert-format", kComputing},
    {"nvfp4-activations", kComputing},
    {"int4-activations", kComputing},
    {"numerics", kComputing},
    {"shape", kShapes},
    {"experts", kShapes},
    {"routing", kShapes},
    {"batch-size", kManyTokens},
    {"n-prompt", kManyTokens},
    {"n-gen", bit(StudyJob::generate)},
    {"lora-rank", bit(StudyJob::sft)},
    {"lora-alpha", bit(StudyJob::sft)},
    {"rslora", bit(StudyJob::sft)},
    {"lora-dropout", bit(StudyJob::sft)},
    {"lora-targets", bit(StudyJob::sft)},
    {"recompute", bit(StudyJob::sft)},
});

}  // namespace

bool is_shape_job(StudyJob job) noexcept {
  return (kShapes & bit(job)) != 0;
}

bool job_takes(StudyJob job, std::string_view option) noexcept {
  const auto* const found = std::ranges::find(kJobOptions, option, &JobOption::name);
  return found == kJobOptions.end() || (found->jobs & bit(job)) != 0;
}

bool changes_no_point(std::string_view option) noexcept {
  const auto* const found = std::ranges::find(kJobOptions, option, &JobOption::name);
  return found != kJobOptions.end() && found->jobs == 0;
}

std::vector<std::string_view> options_of_some_jobs() {
  std::vector<std::string_view> names;
  for (const JobOption& option : kJobOptions) names.push_back(option.name);
  return names;
}

std::int64_t sequence_tokens(const Options& options) noexcept {
  return options.job == StudyJob::generate ? options.point_gen : options.point_prompt;
}

std::string sequence_note(const Options& options, const ModelConfig& config) {
  const std::int64_t tokens = sequence_tokens(options);
  const std::string_view option = options.job == StudyJob::generate ? "n-gen" : "n-prompt";
  return context_note(fmt::format("--{} {}", option, tokens), tokens, config);
}

}  // namespace moesaic
