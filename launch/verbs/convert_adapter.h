#pragma once

#include "launch/job/session.h"

namespace moesaic {

/// `moesaic convert --lora`: writes the adapter of `model` in another layout, or a checkpoint with
/// the adapter merged into it. Collective.
void convert_adapter(const Runtime& runtime, const OpenModel& model);

}  // namespace moesaic
