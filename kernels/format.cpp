#include "kernels/format.h"

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/packed_matrix.h"

namespace moesaic {

std::string_view format_name(Format format) noexcept {
  return format == Format::f32 ? "f32" : "bf16";
}

std::int64_t panel_bytes(Format format, std::int64_t depth) noexcept {
  return format == Format::f32 ? f32_format::panel_bytes(depth) : bf16_format::panel_bytes(depth);
}

}  // namespace moesaic
