#pragma once

#include "comm/communicator.h"

namespace moesaic {

/// What training does with exchange plans, as a check that all ranks of `world` call together: two
/// micro-batches go forward and keep their plans, then backward in reverse order, with gradient
/// rows on the same plans. Results, gradients of inputs, of routing weights and of expert weights
/// have the bits of a loop over all tokens without any exchange. Records GoogleTest failures.
void check_backward_on_plan(Communicator& world);

}  // namespace moesaic
