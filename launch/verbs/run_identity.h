#pragma once

#include "launch/options/options.h"
#include "launch/verbs/result_file.h"
#include "launch/verbs/token_prompts.h"

namespace moesaic {

/// Of the prompts with their tokens, of a model's directory and of the options that decide texts.
/// Weights count with samples of their files. Throws Error{file} if the model cannot be read.
[[nodiscard]] RunIdentity run_identity(const Command& command, const TokenPrompts& input,
                                       const std::string& model_directory);

}  // namespace moesaic
