#include "src/moe/split_experts.h"

#include "base/error.h"

namespace moesaic {

void SplitExperts::backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) {
  fail(ErrorKind::usage, "experts in two places cannot be trained");
}

}  // namespace moesaic
