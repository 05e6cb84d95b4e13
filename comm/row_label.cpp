#include "comm/row_label.h"

#include <fmt/format.h>

namespace moesaic {

std::string RowLabel::text() const {
  return fmt::format("step {}, layer {}, {}", step, layer, phase.data());
}

}  // namespace moesaic
