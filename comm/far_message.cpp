#include "comm/far_message.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// More than any exchange has, and few enough that sums and products of it fit 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

}  // namespace

FarLayout far_layout(const FarHeader& header) {
  FarLayout layout;
  layout.counts = sizeof(FarHeader);
  layout.places = layout.counts + header.num_ranks * std::int64_t{sizeof(std::int64_t)};
  const std::int64_t place_bytes = header.has_places != 0 ? sizeof(std::int32_t) : 0;
  layout.tags = layout.places + header.num_places * place_bytes;
  layout.rows = round_up(layout.tags + header.num_rows * header.tag_bytes, kFarRowAlignment);
  layout.checksums = layout.rows + header.num_rows * header.row_bytes;
  const std::int64_t checksum_bytes = header.has_checksums != 0 ? sizeof(std::uint64_t) : 0;
  layout.end = layout.checksums + header.num_ranks * checksum_bytes;
  layout.first_bytes = header.first_bytes;
  layout.piece_bytes = header.piece_bytes;
  return layout;
}

void cut_far_message(FarHeader& header, bool rows_come_later) {
  const FarLayout layout = far_layout(header);
  header.first_bytes = std::min(layout.end, kFarPieceBytes);
  if (layout.end > kFarPieceBytes && rows_come_later) {
    header.first_bytes = std::min(layout.rows, kFarPieceBytes);
  }
  const std::int64_t rest = layout.end - header.first_bytes;
  header.piece_bytes = std::max(kFarPieceBytes, divide_up(rest, kFarMessages - 1));
}

FarHeader read_far_header(std::span<const std::byte> first, const FarName& whose) {
  FarHeader header;
  require(first.size() >= sizeof header, ErrorKind::peer, "{} has {} bytes, its header has {}",
          whose, first.size(), sizeof header);
  std::memcpy(&header, first.data(), sizeof header);
  require(header.magic == FarHeader::kMagic, ErrorKind::peer,
          "{} begins with {:#x} in place of {:#x}", whose, header.magic, FarHeader::kMagic);
  header.label.phase.back() = 0;
  const auto in_range = [&](const char* name, std::int64_t value, std::int64_t most) {
    require(value >= 0 && value <= most, ErrorKind::peer, "{} has {} = {}", whose, name, value);
  };
  in_range("num_rows", header.num_rows, kMost);
  in_range("num_places", header.num_places, kMost);
  in_range("num_ranks", header.num_ranks, kMost);
  in_range("row_bytes", header.row_bytes, kMost);
  in_range("tag_bytes", header.tag_bytes, kMost);
  constexpr std::int64_t kBytes = std::numeric_limits<std::int64_t>::max() / 4;
  require(header.num_rows <= kBytes / std::max<std::int64_t>(header.row_bytes, 1) &&
              header.num_rows <= kBytes / std::max<std::int64_t>(header.tag_bytes, 1),
          ErrorKind::peer, "{} has {} rows of {} + {} bytes", whose, header.num_rows,
          header.row_bytes, header.tag_bytes);
  const FarLayout layout = far_layout(header);
  require(std::cmp_equal(header.first_bytes, first.size()) && header.first_bytes <= layout.end,
          ErrorKind::peer, "{} has first_bytes = {}; {} of {} bytes came", whose,
          header.first_bytes, first.size(), layout.end);
  require(header.piece_bytes > 0 && header.piece_bytes <= layout.end + kFarPieceBytes &&
              layout.num_messages() <= kFarMessages,
          ErrorKind::peer, "{} has piece_bytes = {}, for {} bytes", whose, header.piece_bytes,
          layout.end);
  return header;
}

void check_far_places(const FarHeader& header, const std::byte* message, const FarName& whose) {
  const FarLayout layout = far_layout(header);
  const auto* counts = reinterpret_cast<const std::int64_t*>(message + layout.counts);
  std::int64_t sum = 0;
  for (std::int32_t rank = 0; rank < header.num_ranks; ++rank) {
    require(counts[rank] >= 0 && counts[rank] <= header.num_places - sum, ErrorKind::peer,
            "{} has {} rows for rank {} of the node, {} for all", whose, counts[rank], rank,
            header.num_places);
    sum += counts[rank];
  }
  require(sum == header.num_places, ErrorKind::peer, "{} has {} rows for all ranks, they have {}",
          whose, header.num_places, sum);
  if (header.has_places == 0) {
    require(header.num_ranks == 1 && sum == header.num_rows, ErrorKind::peer,
            "{} has {} rows in order for {} of {} ranks", whose, header.num_rows, sum,
            header.num_ranks);
    return;
  }
  const auto* places = reinterpret_cast<const std::int32_t*>(message + layout.places);
  const std::int32_t* wrong = std::find_if(places, places + sum, [&](std::int32_t place) {
    return place < 0 || place >= header.num_rows;
  });
  require(wrong == places + sum, ErrorKind::peer, "{} has row {} of {}", whose,
          wrong == places + sum ? 0 : *wrong, header.num_rows);
}

}  // namespace moesaic
