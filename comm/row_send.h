#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/operation.h"

namespace moesaic {

/// Throw Error{internal} unless `send`, or the counts of rows to receive, keep the promises of
/// exchange_rows that the rank can check alone.
void check_row_send(const RowSend& send, std::size_t num_recv_counts, const Waiter& rank);
void check_recv_counts(std::span<const std::int64_t> recv_counts, std::int64_t row_bytes,
                       const Waiter& rank);

/// Where in a receive buffer one peer's rows belong.
struct RowPlacement {
  std::int64_t offset_bytes = 0;
  std::int64_t bytes = 0;
};

/// The places of all peers' rows: in peer order, without gaps.
void place_rows(std::span<const std::int64_t> recv_counts, std::int64_t row_bytes,
                std::vector<RowPlacement>& placements);
/// The bytes that all of them take.
[[nodiscard]] inline std::int64_t placed_bytes(std::span<const RowPlacement> placements) {
  return placements.back().offset_bytes + placements.back().bytes;
}

/// The part of `send.rows` for every peer.
void split_rows(const RowSend& send, std::vector<std::span<const std::int32_t>>& parts);

/// Copies `rows` of the matrix of `send` one after the other to `to`.
void copy_rows(const RowSend& send, std::span<const std::int32_t> rows, std::byte* to) noexcept;

}  // namespace moesaic
