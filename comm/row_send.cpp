#include "comm/row_send.h"

#include <cstring>
#include <limits>

#include "base/checksum.h"
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

void check_exchange(const RowSend& send, std::span<const std::int64_t> expected,
                    const Waiter& rank) {
  const auto num_ranks = static_cast<std::size_t>(rank.size);
  require(send.row_bytes > 0, ErrorKind::internal, "exchange_rows: row_bytes is {}",
          send.row_bytes);
  require(send.tag_bytes >= 0 && send.tag_bytes <= send.row_bytes &&
              (send.tag_bytes == 0 || send.later_rows == 0),
          ErrorKind::internal, "exchange_rows: {} bytes of tags, {} of rows, {} rows later",
          send.tag_bytes, send.row_bytes, send.later_rows);
  require(send.counts.size() == num_ranks && (expected.empty() || expected.size() == num_ranks),
          ErrorKind::internal, "exchange_rows: {} send counts and {} receive counts for {} ranks",
          send.counts.size(), expected.size(), rank.size);
  const std::int64_t total = total_rows(send.counts, send.row_bytes);
  require(static_cast<std::uint64_t>(total) == send.rows.size(), ErrorKind::internal,
          "exchange_rows: the counts promise {} rows, {} are listed", total, send.rows.size());
  require(send.counts[static_cast<std::size_t>(rank.rank)] == 0, ErrorKind::internal,
          "exchange_rows: rank {} sends rows to itself", rank.rank);
  if (expected.empty()) return;
  (void)total_rows(expected, send.row_bytes);
  require(expected[static_cast<std::size_t>(rank.rank)] == 0, ErrorKind::internal,
          "exchange_rows: rank {} expects rows of itself", rank.rank);
}

void split_rows(const RowSend& send, std::vector<std::span<const std::int32_t>>& parts) {
  parts.clear();
  std::size_t first = 0;
  for (const std::int64_t count : send.counts) {
    const auto rows = static_cast<std::size_t>(count);
    parts.push_back(send.rows.subspan(first, rows));
    first += rows;
  }
}

std::uint64_t row_checksum(const RowSend& send, std::span<const std::int32_t> rows) {
  const auto row_bytes = static_cast<std::size_t>(send.row_bytes);
  Checksum sum;
  for (const std::int32_t row : rows) sum.add({send.base + row * send.stride_bytes, row_bytes});
  return sum.value();
}

void copy_rows(const RowSend& send, std::span<const std::int32_t> rows, std::byte* to) noexcept {
  const auto row_bytes = static_cast<std::size_t>(send.row_bytes);
  for (const std::int32_t row : rows) {
    std::memcpy(to, send.base + row * send.stride_bytes, row_bytes);
    to += row_bytes;
  }
}

}  // namespace moesaic
