#pragma once

#include <cstdint>
#include <vector>

#include "src/moe/choice_batch.h"

namespace moesaic {

/// Writes to choices.inputs what the inputs of `dispatch`, whose words are here, chose of
/// `choices`, for experts that plan themselves. Returns the sources of these inputs, in their
/// order. `ranks`: the expert-parallel group.
std::vector<std::int64_t> list_choices(const Communicator& ranks, const PendingDispatch& dispatch,
                                       ChoiceBatch& choices);

}  // namespace moesaic
