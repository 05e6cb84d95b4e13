#include "comm/row_label.h"

#include <fmt/format.h>

namespace moesaic {

std::string RowLabel::text() const {
  std::string text;
  if (step > 0) text = fmt::format("pass {}, ", step);
  if (step > 0 && layer >= 0) text += fmt::format("layer {}, ", layer);
  return text + (phase[0] == '\0' ? "starting" : phase.data());
}

}  // namespace moesaic
