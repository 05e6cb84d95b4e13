#include "comm/row_send.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace moesaic {
namespace {

/// The sum of `counts`, all >= 0 and small enough that their bytes can be counted.
std::int64_t total_rows(std::span<const std::int64_t> counts, std::int64_t row_bytes) {
  std::int64_t room = std::numeric_limits<std::int64_t>::max() / row_bytes;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    require(count >= 0 && count <= room, ErrorKind::internal, "exchange_rows: a row count of {}",
            count);
    room -= count;
    total += count;
  }
  return total;
}

}  // namespace

void check_row_exchange(const RowSend& send, std::span<const std::int64_t> recv_counts, int rank,
                        int size) {
  const auto num_ranks = static_cast<std::size_t>(size);
  const auto self = static_cast<std::size_t>(rank);
  require(send.row_bytes > 0, ErrorKind::internal, "exchange_rows: row_bytes is {}",
          send.row_bytes);
  require(send.counts.size() == num_ranks && recv_counts.size() == num_ranks, ErrorKind::internal,
          "exchange_rows: {} send counts and {} receive counts for {} ranks", send.counts.size(),
          recv_counts.size(), size);
  const std::int64_t total = total_rows(send.counts, send.row_bytes);
  require(static_cast<std::uint64_t>(total) == send.rows.size(), ErrorKind::internal,
          "exchange_rows: the counts promise {} rows, {} are listed", total, send.rows.size());
  (void)total_rows(recv_counts, send.row_bytes);
  require(send.counts[self] == 0 && recv_counts[self] == 0, ErrorKind::internal,
          "exchange_rows: rank {} sends rows to itself", rank);
}

std::vector<RowPlacement> place_rows(std::span<const std::int64_t> recv_counts,
                                     std::int64_t row_bytes) {
  std::vector<RowPlacement> placements;
  placements.reserve(recv_counts.size());
  std::int64_t offset_bytes = 0;
  for (const std::int64_t count : recv_counts) {
    placements.push_back({offset_bytes, count * row_bytes});
    offset_bytes += count * row_bytes;
  }
  return placements;
}

std::vector<std::span<const std::int32_t>> rows_of_peers(const RowSend& send) {
  std::vector<std::span<const std::int32_t>> parts;
  parts.reserve(send.counts.size());
  std::size_t first = 0;
  for (const std::int64_t count : send.counts) {
    const auto rows = static_cast<std::size_t>(count);
    parts.push_back(send.rows.subspan(first, rows));
    first += rows;
  }
  return parts;
}

void copy_rows(const RowSend& send, std::span<const std::int32_t> rows, std::byte* to) noexcept {
  const auto row_bytes = static_cast<std::size_t>(send.row_bytes);
  for (const std::int32_t row : rows) {
    std::memcpy(to, send.base + row * send.stride_bytes, row_bytes);
    to += row_bytes;
  }
}

}  // namespace moesaic
