#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rounding.h"
#include "comm/row_label.h"

namespace moesaic {

/// How the rows of one exchange travel from a rank to another node (docs/comm.md): one run of
/// bytes, its first part in one message, the rest in pieces that this announces.
///
///   FarHeader
///   i64 [ranks of the node]  how many rows are for each
///   i32 [their sum]          which of the rows that follow these are, rank by rank; left out if
///                            they are all rows in order, for the only rank of the node
///   tags [rows]
///   rows, from a multiple of kFarRowAlignment on
///   u64 [ranks of the node]  of a checked exchange: row_checksum of the rows for each
struct FarHeader {
  static constexpr std::uint64_t kMagic = 0x31776f7261736f6d;  // "mosarow1"

  std::uint64_t magic = kMagic;
  std::uint64_t exchange = 0;
  RowLabel label{};
  std::int64_t row_bytes = 0;  // without the tag
  std::int64_t tag_bytes = 0;
  std::int64_t num_rows = 0;
  std::int32_t num_ranks = 0;
  std::int16_t has_places = 0;
  std::int16_t has_checksums = 0;
  std::int64_t num_places = 0;
  std::int64_t first_bytes = 0;  // of the first message
  std::int64_t piece_bytes = 0;  // of those that follow, but the last
};
inline constexpr std::int64_t kFarRowAlignment = 64;

/// Where its parts begin, in bytes, and how it is cut into messages.
struct FarLayout {
  std::int64_t counts = 0;
  std::int64_t places = 0;
  std::int64_t tags = 0;
  std::int64_t rows = 0;
  std::int64_t checksums = 0;
  std::int64_t end = 0;
  std::int64_t first_bytes = 0;
  std::int64_t piece_bytes = 1;

  [[nodiscard]] std::int64_t num_messages() const {
    return 1 + divide_up(end - first_bytes, piece_bytes);
  }
  /// The message that has this byte.
  [[nodiscard]] std::int64_t message_at(std::int64_t byte) const {
    return byte < first_bytes ? 0 : 1 + (byte - first_bytes) / piece_bytes;
  }
  /// Its first byte.
  [[nodiscard]] std::int64_t message_begin(std::int64_t message) const {
    return message == 0 ? 0 : std::min(end, first_bytes + (message - 1) * piece_bytes);
  }
};

/// Names a message in errors.
struct FarName {
  int receiver = 0;
  int sender = 0;
};

/// The first message of an exchange, and each piece that follows, has at most so many bytes: what
/// MPI sends at once over TCP, 64 KiB with its own header. For longer ones it asks the receiver
/// first, and both answer between their tasks only; what is more, on a link that limits them the
/// long messages of two hosts that send to each other mostly take turns (docs/performance.md).
inline constexpr std::int64_t kFarPieceBytes = 64 * 1024 - 256;
/// A rank's exchange with a node has fewer messages than this, in longer pieces if it must.
inline constexpr std::int64_t kFarMessages = 8192;

[[nodiscard]] FarLayout far_layout(const FarHeader& header);
/// Sets how the run of bytes is cut.
void cut_far_message(FarHeader& header, bool rows_come_later);

/// The header in the first message, of which `first` has come. Throws Error{peer} with what is
/// wrong, of the message `whose`, unless all numbers in it are possible.
[[nodiscard]] FarHeader read_far_header(std::span<const std::byte> first, const FarName& whose);
/// Throws Error{peer} unless counts and places, all of which have come, fit the header.
void check_far_places(const FarHeader& header, const std::byte* message, const FarName& whose);

}  // namespace moesaic

/// "rank 1: exchange_rows: the message of rank 0"
template <>
struct fmt::formatter<moesaic::FarName> : fmt::formatter<int> {
  template <typename Context>
  auto format(const moesaic::FarName& name, Context& context) const {
    return fmt::format_to(context.out(), "rank {}: exchange_rows: the message of rank {}",
                          name.receiver, name.sender);
  }
};
