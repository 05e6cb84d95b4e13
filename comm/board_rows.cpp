#include "comm/board_rows.h"

#include "base/error.h"

namespace moesaic {
namespace {

class BoardRowPart final : public RowPart {
 public:
  BoardRowPart(MemoryBoard& board, RowBuffers& buffers)
      : board_(board), buffers_(buffers), slot_(buffers.new_slot()) {}

  void start(RowJob& job) override;
  bool progress() override;
  [[nodiscard]] bool has_sent() const override { return has_offered_ && unsent_.empty(); }
  [[nodiscard]] std::string missing() const override;

 private:
  [[nodiscard]] std::size_t group_rank(int peer) const {
    return static_cast<std::size_t>(board_.name_of(peer));
  }
  [[nodiscard]] Waiter self() const {
    return {board_.name_of(board_.rank()), static_cast<int>(job_->parts.size()), {}};
  }
  void post_counts();
  bool has_read_counts();
  void offer();
  void send_to(int peer);
  void take_from(int peer);

  MemoryBoard& board_;
  RowBuffers& buffers_;
  std::size_t slot_;
  RowJob* job_ = nullptr;
  bool has_offered_ = false;
  // By their ranks on the board:
  int next_peer_ = 0;                     // the counts of all below have been read
  std::vector<std::int64_t> counts_;      // [board ranks] rows to send, then rows to receive
  std::vector<int> unsent_;               // peers that rows have to go to
  std::vector<int> awaited_;              // peers whose rows have not come
  std::vector<RowPlacement> placements_;  // [board ranks]
};

void BoardRowPart::start(RowJob& job) {
  job_ = &job;
  has_offered_ = false;
  next_peer_ = 0;
  unsent_.clear();
  awaited_.clear();
  for (int step = 1; step < board_.size(); ++step) {  // not all to the same receiver at once
    const int peer = (board_.rank() + step) % board_.size();
    if (!job.parts[group_rank(peer)].empty()) unsent_.push_back(peer);
  }
  if (job.expected.empty()) return post_counts();
  counts_.clear();
  for (int peer = 0; peer < board_.size(); ++peer) {
    counts_.push_back(job.expected[group_rank(peer)]);
  }
  offer();
}

void BoardRowPart::post_counts() {
  counts_.clear();
  for (int peer = 0; peer < board_.size(); ++peer) {
    counts_.push_back(std::ssize(job_->parts[group_rank(peer)]));
  }
  board_.post_counts(job_->number, job_->send.label, counts_);
}

bool BoardRowPart::has_read_counts() {
  while (next_peer_ < board_.size() && board_.has_posted_counts(next_peer_, job_->number)) {
    check_label(self(), job_->send.label, board_.name_of(next_peer_),
                board_.counts_label(next_peer_, job_->number));
    counts_[static_cast<std::size_t>(next_peer_)] = board_.count_from(next_peer_, job_->number);
    ++next_peer_;
  }
  return next_peer_ == board_.size();
}

/// Room for the rows of all peers: in peer order, without gaps.
void BoardRowPart::offer() {
  const std::int64_t row_bytes = job_->send.row_bytes;
  placements_.clear();
  std::int64_t offset_bytes = 0;
  for (int peer = 0; peer < board_.size(); ++peer) {
    const std::int64_t bytes = counts_[static_cast<std::size_t>(peer)] * row_bytes;
    placements_.push_back({offset_bytes, bytes});
    offset_bytes += bytes;
    if (bytes > 0) awaited_.push_back(peer);
  }
  const std::byte* buffer = buffers_.reserve(slot_, offset_bytes);
  const std::int64_t tag_offset = row_bytes - job_->send.tag_bytes;
  for (int peer = 0; peer < board_.size(); ++peer) {
    PeerRows& from = job_->from[group_rank(peer)];
    from.rows = buffer + placements_[static_cast<std::size_t>(peer)].offset_bytes;
    from.row_stride = row_bytes;
    from.tags = from.rows + tag_offset;
    from.tag_stride = row_bytes;
    if (counts_[static_cast<std::size_t>(peer)] == 0) from.count = 0;
  }
  board_.offer_rows(job_->number, {buffers_.name(slot_), job_->send.label, placements_});
  has_offered_ = true;
}

bool BoardRowPart::progress() {
  if (!has_offered_ && has_read_counts()) offer();
  std::erase_if(unsent_, [&](int peer) {
    if (!job_->all_ready() || !board_.has_offered(peer, job_->number)) return false;
    send_to(peer);
    return true;
  });
  std::erase_if(awaited_, [&](int peer) {
    if (!board_.has_sent(peer, job_->number)) return false;
    take_from(peer);
    return true;
  });
  return has_offered_ && unsent_.empty() && awaited_.empty();
}

void BoardRowPart::send_to(int peer) {
  const std::span<const std::int32_t> rows = job_->parts[group_rank(peer)];
  const MemoryBoard::RowOffer offer = board_.offer_of(peer, job_->number);
  check_label(self(), job_->send.label, board_.name_of(peer), offer.label);
  const RowPlacement place = offer.placements.front();
  const auto bytes = static_cast<std::int64_t>(rows.size()) * job_->send.row_bytes;
  require(place.bytes == bytes, ErrorKind::peer,
          "rank {}: exchange_rows: {} bytes for rank {}, which expects {}",
          board_.name_of(board_.rank()), bytes, board_.name_of(peer), place.bytes);
  const std::uint64_t checksum = job_->is_checked ? row_checksum(job_->send, rows) : 0;
  copy_rows(job_->send, rows, buffers_.of_peer(peer, offer.buffer) + place.offset_bytes);
  board_.mark_sent(peer, job_->number, checksum);
  job_->counters->bytes_near += bytes;
}

/// All rows of `peer` have come, and so their tags.
void BoardRowPart::take_from(int peer) {
  PeerRows& from = job_->from[group_rank(peer)];
  from.count = from.here = counts_[static_cast<std::size_t>(peer)];
  from.checksum = board_.sent_checksum(peer, job_->number);
}

std::string BoardRowPart::missing() const {
  RankList counts;
  for (int peer = next_peer_; !has_offered_ && peer < board_.size(); ++peer) {
    if (!board_.has_posted_counts(peer, job_->number)) counts.add(board_.name_of(peer));
  }
  if (!counts.empty()) return "the counts of rank " + counts.text();
  RankList senders;
  for (const int peer : awaited_) senders.add(board_.name_of(peer));
  RankList receivers;
  for (const int peer : unsent_) receivers.add(board_.name_of(peer));
  std::string text;
  if (!receivers.empty()) text = "rank " + receivers.text() + " to make room";
  if (!receivers.empty() && !senders.empty()) text += " and ";
  if (!senders.empty()) text += "the rows of rank " + senders.text();
  return text;
}

}  // namespace

std::unique_ptr<RowPart> BoardRows::make_part() {
  return std::make_unique<BoardRowPart>(board_, buffers_);
}

}  // namespace moesaic
