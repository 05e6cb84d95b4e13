#include "comm/far_receive.h"

#include <cstring>

#include "comm/far_send.h"
#include "comm/reader_words.h"

namespace moesaic {
namespace {

// Before a message stand ReaderWords: twice the exchange for which a rank has found the message,
// and one more when it is done with it.
std::int64_t words_bytes(const MemoryBoard& board) {
  return ReaderWords::bytes(board.size());
}

FarName name_of_message(const MemoryBoard& board, int source) {
  return {board.name_of(board.rank()), source};
}

}  // namespace

RowArena::Piece FarInbox::allocate(RowArena& arena, std::int64_t bytes) const {
  const RowArena::Piece piece = arena.allocate(words_bytes(board_) + bytes);
  ReaderWords(piece.data).clear(board_.size());
  return piece;
}

void FarInbox::start(const RowJob& job, RowArena& arena, Messages& messages) {
  job_ = &job;
  next_ = 0;
  memory_ = allocate(arena, kFarPieceBytes);
  first_number_ = messages.receive(
      source_, far_tag(job.number, 0),
      {memory_.data + words_bytes(board_), static_cast<std::size_t>(kFarPieceBytes)});
}

bool FarInbox::progress(RowArena& arena, Messages& messages) {
  if (next_ == 0) {
    if (messages.received_bytes(first_number_) < 0) return false;
    read_head(arena, messages);
  }
  const std::int64_t before = next_;
  while (next_ < layout_.num_messages()) {
    const std::int64_t bytes =
        messages.received_bytes(first_number_ + static_cast<std::size_t>(next_ - 1));
    if (bytes < 0) break;
    const std::int64_t expected = layout_.message_begin(next_ + 1) - layout_.message_begin(next_);
    require(bytes == expected, ErrorKind::peer, "{} has a piece of {} bytes in place of {}",
            name_of_message(board_, source_), bytes, expected);
    ++next_;
  }
  if (next_ > before) board_.mark_arrived(source_, job_->number, layout_.message_begin(next_));
  return next_ == layout_.num_messages();
}

/// The first message is here: it tells what follows, and where it is to go.
void FarInbox::read_head(RowArena& arena, Messages& messages) {
  std::byte* message = memory_.data + words_bytes(board_);
  const FarName whose = name_of_message(board_, source_);
  const auto bytes = static_cast<std::size_t>(messages.received_bytes(first_number_));
  const FarHeader header = read_far_header({message, bytes}, whose);
  const Waiter self{board_.name_of(board_.rank()), static_cast<int>(job_->parts.size()), {}};
  check_label(self, job_->send.label, source_, header.label);
  require(header.exchange == job_->number && header.num_ranks == board_.size() &&
              header.row_bytes + header.tag_bytes == job_->send.row_bytes &&
              header.tag_bytes == job_->send.tag_bytes,
          ErrorKind::peer,
          "{} is of exchange {}, for {} ranks, rows of {} bytes with {} of tags; expected {}, {}, "
          "{}, {}",
          whose, header.exchange, header.num_ranks, header.row_bytes + header.tag_bytes,
          header.tag_bytes, job_->number, board_.size(), job_->send.row_bytes,
          job_->send.tag_bytes);
  require((header.has_checksums != 0) == job_->is_checked, ErrorKind::peer,
          "{} has {}checksums, unlike what is expected", whose,
          header.has_checksums != 0 ? "" : "no ");
  layout_ = far_layout(header);
  if (layout_.num_messages() > 1) {
    memory_ = allocate(arena, layout_.end);
    std::memcpy(memory_.data + words_bytes(board_), message, bytes);
    message = memory_.data + words_bytes(board_);
  }
  for (std::int64_t piece = 1; piece < layout_.num_messages(); ++piece) {
    const std::int64_t begin = layout_.message_begin(piece);
    const std::size_t number = messages.receive(
        source_, far_tag(job_->number, piece),
        {message + begin, static_cast<std::size_t>(layout_.message_begin(piece + 1) - begin)});
    if (piece == 1) first_number_ = number;
  }
  next_ = 1;
  board_.announce(source_, job_->number, memory_.place, layout_.message_begin(1));
}

/// Whether the words of all ranks are at least that.
bool FarInbox::have_all_reached(std::uint64_t value) const {
  for (int rank = 0; rank < board_.size(); ++rank) {
    if (!ReaderWords(memory_.data).has_reached(rank, value)) return false;
  }
  return true;
}

bool FarInbox::is_found() const {
  return job_ == nullptr || next_ == 0 || have_all_reached(2 * job_->number);
}

bool FarInbox::is_free() const {
  return job_ == nullptr || have_all_reached(2 * job_->number + 1);
}

void FarReader::start(RowJob& job) {
  job_ = &job;
  memory_ = nullptr;
  has_checksum_ = false;
}

bool FarReader::is_announced() {
  if (memory_ != nullptr) return true;
  if (!board_.has_announced(agent_, source_, job_->number)) return false;
  const BoardPlace place = board_.announced_place(agent_, source_, job_->number);
  memory_ = buffers_.of_peer(agent_, place.buffer) + place.offset_bytes;
  ReaderWords(memory_).set(board_.rank(), 2 * job_->number);
  std::memcpy(&header_, memory_ + words_bytes(board_), sizeof header_);
  layout_ = far_layout(header_);
  return true;
}

bool FarReader::progress() {
  if (has_all()) return true;
  PeerRows& from = rows();
  if (!is_announced()) return false;
  const std::int64_t arrived = board_.arrived_bytes(agent_, source_, job_->number);
  if (from.count < 0) {
    if (arrived < layout_.rows) return false;
    read_places();
  }
  if (arrived == layout_.end) {
    from.here = from.count;
    read_checksum();
  }
  while (from.here < from.count &&
         layout_.rows + (from.place(from.here) + 1) * header_.row_bytes <= arrived) {
    ++from.here;
  }
  return has_all();
}

/// Which of the rows are for this rank.
void FarReader::read_places() {
  const std::byte* message = memory_ + words_bytes(board_);
  const FarName whose = name_of_message(board_, source_);
  check_far_places(header_, message, whose);
  const auto* counts = reinterpret_cast<const std::int64_t*>(message + layout_.counts);
  std::int64_t first = 0;
  for (int rank = 0; rank < board_.rank(); ++rank) first += counts[rank];
  const std::int64_t count = counts[board_.rank()];
  const auto source = static_cast<std::size_t>(source_);
  require(job_->expected.empty() || job_->expected[source] == count, ErrorKind::peer,
          "{} has {} rows for this rank, which expects {}", whose, count,
          job_->expected.empty() ? 0 : job_->expected[source]);
  const auto* places = reinterpret_cast<const std::int32_t*>(message + layout_.places) + first;
  rows() = {.count = count,
            .here = 0,
            .rows = message + layout_.rows,
            .row_stride = header_.row_bytes,
            .tags = message + layout_.tags,
            .tag_stride = header_.tag_bytes,
            .places = header_.has_places == 0 ? nullptr : places};
}

void FarReader::read_checksum() {
  if (!job_->is_checked) return;
  std::memcpy(&rows().checksum,
              memory_ + words_bytes(board_) + layout_.checksums +
                  board_.rank() * std::int64_t{sizeof(std::uint64_t)},
              sizeof(std::uint64_t));
  has_checksum_ = true;
}

void FarReader::let_go() noexcept {
  if (memory_ == nullptr) return;
  ReaderWords(memory_).set(board_.rank(), 2 * job_->number + 1);
}

}  // namespace moesaic
