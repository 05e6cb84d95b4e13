#pragma once

#include <memory>

#include "src/model/mla_kind.h"

namespace moesaic {

/// Runs the layers of an MlaKind. `config` and `context` must outlive it.
[[nodiscard]] std::unique_ptr<TokenMixer> make_mla_attention(const MlaConfig& config,
                                                             LayerContext& context);

}  // namespace moesaic
