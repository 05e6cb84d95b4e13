#pragma once

#include <span>
#include <string>

#include "launch/job/launcher.h"
#include "launch/job/rank_info.h"

namespace moesaic {

/// What is to be set where mpirun has started ranks on several hosts and would wait for ever for
/// one that it cannot reach any more; empty: nothing. `variables` is std::getenv.
[[nodiscard]] std::string lost_host_warning(std::span<const RankInfo> ranks,
                                            const Launcher::Variables& variables);

}  // namespace moesaic
