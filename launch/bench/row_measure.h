#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "launch/bench/together.h"
#include "launch/job/runtime.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// What work on rows between products takes on a node: a number of calls of some sizes, all ranks
/// at work at the same time, by the functions that a forward pass calls. `job_seconds` of a call
/// are not counted, nor are RowOp::gate and RowOp::attend, which are not of calls of their own.
/// `memory` is more than caches hold; it is written to. Collective.
[[nodiscard]] std::array<RateCurve, kNumRowOps> measure_row_ops(const Runtime& runtime,
                                                                const Together& together,
                                                                std::span<std::byte> memory,
                                                                double job_seconds);

/// What choosing experts takes besides the router's product. `rounding`: of a node, of
/// RowOp::round. Collective.
[[nodiscard]] RoutingRates measure_routing(const Runtime& runtime, const Together& together,
                                           const RateCurve& rounding);

}  // namespace moesaic
