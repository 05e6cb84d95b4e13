#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

/// The entries of all ranks, which travel as they stand, in the order of the ranks. Collective.
template <typename Entry>
[[nodiscard]] std::vector<Entry> gather_entries(Communicator& world, std::vector<Entry> own) {
  if (world.size() == 1) return own;
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::int64_t count = std::ssize(own);
  std::vector<std::int64_t> counts(ranks);
  world.all_gather(std::as_bytes(std::span(&count, 1)), std::as_writable_bytes(std::span(counts)));
  const auto most = static_cast<std::size_t>(std::ranges::max(counts));
  std::vector<Entry> all;
  if (most == 0) return all;
  own.resize(most);
  std::vector<Entry> padded(most * ranks);
  world.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(padded)));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = padded.begin() + static_cast<std::ptrdiff_t>(rank * most);
    all.insert(all.end(), begin, begin + counts[rank]);
  }
  return all;
}

}  // namespace moesaic
