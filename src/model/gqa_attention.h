#pragma once

#include <memory>

#include "src/model/gqa_kind.h"

namespace moesaic {

/// Runs the layers of a GqaKind. `config` and `context` must outlive it.
[[nodiscard]] std::unique_ptr<TokenMixer> make_gqa_attention(const GqaConfig& config,
                                                             LayerContext& context);

}  // namespace moesaic
