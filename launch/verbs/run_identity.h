#pragma once

#include <string>

#include "launch/input/token_prompts.h"
#include "launch/job/runtime.h"
#include "launch/verbs/record_file.h"
#include "launch/verbs/score_input.h"
#include "src/generate/sampling_options.h"

namespace moesaic {

/// Of the inputs, of which this is the checksum, of a model's directory and of the options that
/// decide results, of which some depend on which ranks share the experts, and on their nodes.
/// Weights count with samples of their files. Throws Error{file} if the model cannot be read.
[[nodiscard]] RunIdentity run_identity(const Runtime& runtime, std::string inputs,
                                       const std::string& model_directory);
/// Of prompts that are continued: in the place of options that nobody has given what the model's
/// makers want counts (`sampling`).
[[nodiscard]] RunIdentity run_identity(const Runtime& runtime, const TokenPrompts& input,
                                       const std::string& model_directory,
                                       const SamplingOptions& sampling);
/// Of prompts that are still to come: what else --chat makes their texts of counts in their place.
[[nodiscard]] RunIdentity run_identity_of_arriving(const Runtime& runtime,
                                                   const TokenPrompts& input,
                                                   const std::string& model_directory,
                                                   const SamplingOptions& sampling);

/// Of texts, before any of their windows are dropped.
[[nodiscard]] std::string inputs_checksum(const ScoreInput& input);

}  // namespace moesaic
