#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/operation.h"

namespace moesaic {

/// Throws Error{internal} unless `send`, and what is expected, keep the promises of exchange_rows
/// that the rank can check alone.
void check_exchange(const RowSend& send, std::span<const std::int64_t> expected,
                    const Waiter& rank);

/// Throws Error{peer} if `peer` sends rows that are about something else.
inline void check_label(const Waiter& rank, const RowLabel& own, int peer, const RowLabel& theirs) {
  if (own == theirs) return;
  fail(ErrorKind::peer, "rank {} of {}: exchange_rows: this rank is at {}, but rank {} at {}",
       rank.rank, rank.size, own.text(), peer, theirs.text());
}

/// The part of `send.rows` for every peer.
void split_rows(const RowSend& send, std::vector<std::span<const std::int32_t>>& parts);

/// The checksum of these rows of the matrix of `send` one after the other, each with its tag.
[[nodiscard]] std::uint64_t row_checksum(const RowSend& send, std::span<const std::int32_t> rows);

/// Copies `rows` of the matrix of `send` one after the other to `to`.
void copy_rows(const RowSend& send, std::span<const std::int32_t> rows, std::byte* to) noexcept;

}  // namespace moesaic
