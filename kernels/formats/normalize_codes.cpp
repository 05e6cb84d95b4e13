#include "kernels/formats/normalize_codes.h"

#include "base/error.h"

namespace moesaic {

void fail_beyond_bfloat16(std::int64_t row, std::int64_t step) {
  fail(ErrorKind::file, "row {} of a panel, k {} to {}: a weight is beyond the range of bf16", row,
       step * kStepDepth, step * kStepDepth + kStepDepth - 1);
}

}  // namespace moesaic
