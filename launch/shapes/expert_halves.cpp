#include "launch/shapes/expert_halves.h"

#include "base/error.h"

namespace moesaic {

void ExpertHalves::backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) {
  fail(ErrorKind::usage, "experts in two places cannot be trained");
}

}  // namespace moesaic
