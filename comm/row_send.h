#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

/// Throws Error{internal} unless `send` and `recv_counts` keep the promises of exchange_rows that
/// rank `rank` of `size` can check alone.
void check_row_exchange(const RowSend& send, std::span<const std::int64_t> recv_counts, int rank,
                        int size);

/// Where in a receive buffer one peer's rows belong.
struct RowPlacement {
  std::int64_t offset_bytes = 0;
  std::int64_t bytes = 0;
};

/// The places of all peers' rows: in peer order, without gaps.
[[nodiscard]] std::vector<RowPlacement> place_rows(std::span<const std::int64_t> recv_counts,
                                                   std::int64_t row_bytes);
/// The bytes that all of them take.
[[nodiscard]] inline std::int64_t placed_bytes(std::span<const RowPlacement> placements) {
  return placements.back().offset_bytes + placements.back().bytes;
}

/// The part of `send.rows` for every peer.
[[nodiscard]] std::vector<std::span<const std::int32_t>> rows_of_peers(const RowSend& send);

/// Copies `rows` of the matrix of `send` one after the other to `to`.
void copy_rows(const RowSend& send, std::span<const std::int32_t> rows, std::byte* to) noexcept;

}  // namespace moesaic
