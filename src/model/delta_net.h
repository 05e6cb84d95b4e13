#pragma once

#include <memory>

#include "src/model/delta_kind.h"

namespace moesaic {

/// `config` and `context` must outlive the result.
[[nodiscard]] std::unique_ptr<TokenMixer> make_delta_net(const DeltaConfig& config,
                                                         LayerContext& context);

}  // namespace moesaic
