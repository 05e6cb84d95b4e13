#pragma once

#include "launch/job/runtime.h"
#include "src/model/model_files.h"

namespace moesaic {

/// Throws AgreedError{peer} on all ranks, naming weight, file and ranks, unless the files of all
/// ranks have the same bytes at samples of each: nodes with copies of their own may have other
/// copies. With --verify all bytes of a checkpoint are compared; those of a converted directory
/// have checksums, which are compared as they are loaded. The names and shapes have to be the same
/// already. Collective.
void require_same_weights(const Runtime& runtime, const ModelFiles& files);

/// Whether --verify means the checksums of a converted directory: a single rank has no others to
/// compare a checkpoint with, and is told so as it loads.
[[nodiscard]] bool verifies_packed(const Runtime& runtime, const ModelFiles& files);

}  // namespace moesaic
