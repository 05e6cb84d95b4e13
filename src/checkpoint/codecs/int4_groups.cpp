#include "src/checkpoint/codecs/int4_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/checkpoint/codecs/scale_tensor.h"

namespace moesaic {

StoredGroups even_groups(const StoredTensor& scales, std::int64_t count, std::int64_t cols) {
  if (count <= 0 || cols % count != 0) {
    scales.refuse(
        fmt::format("gives {} scales to rows of {}, which they do not divide", count, cols));
  }
  return {cols / count, {}};
}

std::optional<StoredGroups> indexed_groups(const StoredTensor& g_idx, std::int64_t count,
                                           std::int64_t cols) {
  g_idx.require_form(DType::i32, {cols});
  std::vector<std::int64_t> members(static_cast<std::size_t>(count), 0);
  bool sorted = true;
  std::int64_t unused = 0;
  for (std::int64_t k = 0; k < cols; ++k) {
    const auto group = g_idx.load<std::int32_t>(k);
    if (group == -1) ++unused;
    if (group < 0 || group >= count) continue;
    ++members[static_cast<std::size_t>(group)];
    sorted = sorted && (k == 0 || g_idx.load<std::int32_t>(k - 1) <= group);
  }
  if (unused == cols) return std::nullopt;
  const std::int64_t size = members.empty() ? 0 : members.front();
  const bool even =
      std::accumulate(members.begin(), members.end(), std::int64_t{0}) == cols && size > 0 &&
      std::all_of(members.begin(), members.end() - 1, [&](auto n) { return n == size; }) &&
      members.back() > 0 && members.back() <= size;
  if (!even) {
    g_idx.refuse(fmt::format(
        "does not part {} inputs into {} groups of one size (but for the last), which is needed",
        cols, count));
  }
  StoredGroups groups{size, {}};
  if (sorted) return groups;
  groups.order.resize(static_cast<std::size_t>(cols));
  std::iota(groups.order.begin(), groups.order.end(), 0);
  std::ranges::stable_sort(groups.order, {},
                           [&](std::int32_t k) { return g_idx.load<std::int32_t>(k); });
  return groups;
}

Layout int4_group_layout(const StoredTensor& scales, const StoredGroups& groups, std::int64_t cols,
                         bool symmetric) {
  if (!is_float_scale(scales.dtype())) scales.refuse("should hold scales of type F32, BF16 or F16");
  Layout layout{Format::int4_group, 128, !symmetric || scales.dtype() != DType::bf16};
  if (groups.size >= cols || groups.size % 128 == 0) return layout;
  for (const std::int32_t size : {64, 32}) {
    if (groups.size % size != 0) continue;
    layout.group = size;
    return layout;
  }
  scales.refuse(fmt::format("is of groups of {}; groups must be multiples of 32, or the whole row",
                            groups.size));
}

}  // namespace moesaic
