#pragma once

#include <cstdint>
#include <string>

#include "launch/options/options.h"
#include "src/generate/generation_defaults.h"
#include "src/generate/sampling_options.h"

namespace moesaic {

/// How a verb samples where a request does not say it.
struct SamplingChoice {
  SamplingOptions options;
  /// "sampling: temperature 0.7, top-k 20 (generation_config.json); top-p 0.9 (given); seed 0
  /// (default)": what counts, and why.
  std::string text;
};

/// What the command gives, else what the model's makers want, else the default of each option.
/// --seed -1 draws a seed, another one on every rank. Throws Error{usage} for what is out of range;
/// tokens of a bias are compared with `vocab_size`.
[[nodiscard]] SamplingChoice choose_sampling(const Command& command,
                                             const GenerationDefaults& defaults,
                                             std::int64_t vocab_size);

/// As an object with the names that lines of requests have: what a request gets that says nothing.
[[nodiscard]] std::string sampling_json(const SamplingOptions& sampling);

/// `seed`, or one that is drawn for -1.
[[nodiscard]] std::uint64_t seed_of(std::int64_t seed);

/// "15043+1", "15043-2.5", "29905-inf": --logit-bias. Throws Error{usage}.
[[nodiscard]] LogitBias parse_logit_bias(std::string_view text);

}  // namespace moesaic
