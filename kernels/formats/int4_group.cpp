#include "kernels/formats/int4_group.h"

#include <algorithm>
#include <bit>
#include <span>

#include "kernels/formats/panel_steps.h"
#include "kernels/formats/quantize_groups.h"
#include "kernels/packed_matrix.h"

namespace moesaic::int4_group_format {
namespace {

/// Nearest-even at 16 significant bits: the low 8 are free for a zero point.
std::uint32_t wide_scale(float scale) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return (bits + 0x7fU + (bits >> 8 & 1U)) & 0xffffff00U;
}

/// A scale as the layout holds it.
float rounded_scale(const Layout& layout, float scale) {
  return layout.wide_scales ? std::bit_cast<float>(wide_scale(scale))
                            : to_float(to_bfloat16(scale));
}

void require_scale(const GroupScale& group, bool wide, std::int64_t row, std::int64_t k) {
  const float scale = group.scale;
  require(std::isfinite(scale), ErrorKind::file,
          "row {} of a panel, k {}: the scale {} is no number", row, k, scale);
  require(wide || (to_float(to_bfloat16(scale)) == scale && group.zero == kCompactZero),
          ErrorKind::internal,
          "row {} of a panel, k {}: scale {} and zero point {} are not compact", row, k, scale,
          group.zero);
  require(group.zero <= 15, ErrorKind::internal, "row {} of a panel, k {}: zero point {}", row, k,
          group.zero);
  // Kernels add (8 - zero) * scale.
  require(group.zero == kCompactZero || std::fabs(scale) <= 0x1p124F, ErrorKind::file,
          "row {} of a panel, k {}: scale {} with zero point {} is too large", row, k, scale,
          group.zero);
}

/// The 16 scales of a group, checked; the zero points that go with them.
void pack_scales(const Layout& layout, const QuantizedRows& rows, std::int64_t group,
                 std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    GroupScale at;
    if (layout.wide_scales) at.zero = 0;
    if (r < rows.num_rows) {
      const std::size_t index = rows.group_index(r, group);
      at = {flushed_scale(rows.scales[index]), rows.zeros[index]};
      require_scale(at, layout.wide_scales, r, group * layout.group);
    }
    if (layout.wide_scales) {
      store_as(out + r * 4, wide_scale(at.scale) | at.zero);
    } else {
      store_as(out + r * 2, to_bfloat16(at.scale).bits);
    }
  }
}

/// Throws Error{file} if a value of this step is beyond bf16.
void check_values(const GroupScale& group, std::int64_t row, std::int64_t first_k,
                  std::span<const std::uint8_t> codes) {
  if (!is_beyond_bfloat16(15 * group.scale)) return;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float value = static_cast<float>((codes[i] & 15) - group.zero) * group.scale;
    require(!is_beyond_bfloat16(value), ErrorKind::file,
            "row {} of a panel, k {}: the weight {} is beyond the range of bf16", row,
            first_k + static_cast<std::int64_t>(i), value);
  }
}

/// Eight codes of 16 bits each in `eight`, of which every other counts, as 16 bits.
std::uint64_t gather_nibbles(std::uint64_t eight) {
  std::uint64_t bits = eight & 0x000f000f000f000fU;
  bits = (bits | bits >> 12) & 0x000000ff000000ffU;
  return (bits | bits >> 24) & 0xffffU;
}

/// 16 codes as two words, the even k low.
std::uint64_t pack_half(const std::uint8_t* codes) {
  const std::uint64_t lower = load_codes(codes);
  const std::uint64_t upper = load_codes(codes + 8);
  const std::uint64_t even = gather_nibbles(lower) | gather_nibbles(upper) << 16;
  const std::uint64_t odd = gather_nibbles(lower >> 8) | gather_nibbles(upper >> 8) << 16;
  return even | odd << 32;
}

struct StepPlace {
  const std::byte* scales;
  std::byte* out;
};

void pack_step(const Layout& layout, const QuantizedRows& rows, std::int64_t step,
               const StepPlace& place) {
  StepCodes<kStepDepth> codes;
  load_step(rows, step, codes);
  const std::int64_t first_k = step * kStepDepth;
  const std::int64_t valid = std::min(kStepDepth, rows.depth - first_k);
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    const GroupScale group = load_scale(layout, place.scales, r);
    std::uint8_t* const row = codes.row[r];
    std::fill(row + (r < rows.num_rows ? valid : 0), row + kStepDepth, group.zero);
    check_values(group, r, first_k, std::span(row, kStepDepth));
    store_as(place.out + r * 8, pack_half(row));
    store_as(place.out + 128 + r * 8, pack_half(row + 16));
  }
}

}  // namespace

GroupScale load_scale(const Layout& layout, const std::byte* scales, std::int64_t column) {
  if (layout.wide_scales) {
    const auto word = load_as<std::uint32_t>(scales + column * 4);
    return {std::bit_cast<float>(word & 0xffffff00U), static_cast<std::uint8_t>(word & 0xff)};
  }
  return {to_float(BFloat16{load_as<std::uint16_t>(scales + column * 2)}), kCompactZero};
}

std::int32_t load_code(const std::byte* codes, std::int64_t column, std::int64_t k) {
  const std::int64_t word = k / 16 * 32 + column * 2 + k % 2;
  return static_cast<std::int32_t>(load_as<std::uint32_t>(codes + word * 4) >> (k % 16 / 2 * 4) &
                                   15U);
}

void quantize(const Layout& layout, const FloatRows& rows, QuantizedRows& out) {
  const std::int64_t groups = round_up(rows.depth, layout.group) / layout.group;
  out.scales.assign(static_cast<std::size_t>(rows.num_rows * groups), 0);
  out.zeros.assign(out.scales.size(), kCompactZero);
  quantize_groups(rows, layout.group, out, [&](const FloatGroup& group) {
    const float scale = rounded_scale(layout, scale_for(group.amax, 7.5F));
    out.scales[group.index] = scale;
    encode_group(group, scale, kCompactZero, [](float value) {
      return std::clamp(nearest_integer(value), -8, 7) + kCompactZero;
    });
  });
}

void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel) {
  std::byte* const scales = panel + scales_offset(rows.depth);
  std::byte* const end = panel + int4_group_format::panel_bytes(layout, rows.depth);
  std::fill(scales + rows.num_groups * scale_bytes(layout), end, std::byte{0});
  for (std::int64_t group = 0; group < rows.num_groups; ++group) {
    pack_scales(layout, rows, group, scales + group * scale_bytes(layout));
  }
  for (std::int64_t step = 0; step < step_count(Format::int4_group, rows.depth); ++step) {
    const std::int64_t group = step * kStepDepth / layout.group;
    pack_step(layout, rows, step,
              {scales + group * scale_bytes(layout), panel + step * kStepBytes});
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * kStepBytes;
  const std::int64_t group = step * kStepDepth / matrix.layout.group;
  const std::byte* const scales =
      matrix.panel(panel) + scales_offset(matrix.depth) + group * scale_bytes(matrix.layout);
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    const GroupScale at = load_scale(matrix.layout, scales, column);
    // Exact, and a zero has the sign that kernels give it.
    const auto code = static_cast<float>(load_code(codes, column, k) - kCompactZero);
    return to_bfloat16(std::fma(code, at.scale, (kCompactZero - at.zero) * at.scale));
  });
}

}  // namespace moesaic::int4_group_format
