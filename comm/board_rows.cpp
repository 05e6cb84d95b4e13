#include "comm/board_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/reader_words.h"

namespace moesaic {
namespace {

/// The rows of one exchange. What a rank sends has a head, in a buffer of its own: ReaderWords,
/// with the exchange whose rows each rank is done with, then an i32 for each row that is sent, its
/// place in the matrix; or, in the place of these, a copy of the rows.
class BoardRowPart final : public RowPart {
 public:
  BoardRowPart(MemoryBoard& board, RowPool& pool)
      : board_(board), pool_(pool), buffers_(pool.buffers()), slot_(buffers_.new_slot()) {}

  void start(RowJob& job) override;
  bool progress() override;
  [[nodiscard]] Awaited missing() const override;
  void let_go() noexcept override;
  [[nodiscard]] bool is_found() const override;
  [[nodiscard]] bool is_free() const override;

 private:
  [[nodiscard]] std::size_t group_rank(int peer) const {
    return static_cast<std::size_t>(board_.name_of(peer));
  }
  [[nodiscard]] std::span<const std::int32_t> rows_for(int peer) const {
    return job_->parts[group_rank(peer)];
  }
  [[nodiscard]] std::int64_t words_bytes() const { return ReaderWords::bytes(board_.size()); }
  void pass_over(int peer);
  void check_count(int peer, std::int64_t count) const;
  void check_wanted(int peer, bool is_wanted) const;
  void post();
  [[nodiscard]] std::int64_t share_out();
  [[nodiscard]] RowNotice place_rows(std::int64_t num_rows);
  void take_from(int peer);

  MemoryBoard& board_;
  RowPool& pool_;
  RowBuffers& buffers_;
  std::size_t slot_;
  RowJob* job_ = nullptr;
  bool is_posted_ = false;
  std::byte* head_ = nullptr;       // of what this rank sends, if it sends rows
  RowBlock* block_ = nullptr;       // that has their matrix, if they are not copied
  std::vector<RowShare> shares_;    // [board ranks]
  std::vector<int> awaited_;        // peers of which nothing has been heard
  std::vector<ReaderWords> taken_;  // of those whose rows this rank has
};

void BoardRowPart::start(RowJob& job) {
  if (block_ != nullptr) std::erase(block_->readers, this);
  block_ = job.send.rows.empty() ? nullptr : pool_.find(job.send.base);
  if (block_ != nullptr) block_->readers.push_back(this);
  job_ = &job;
  is_posted_ = false;
  head_ = nullptr;
  awaited_.clear();
  taken_.clear();
  for (int peer = 0; peer < board_.size(); ++peer) {
    if (peer == board_.rank()) continue;
    if (job.expected.empty() || job.expected[group_rank(peer)] > 0) {
      awaited_.push_back(peer);
    } else {
      pass_over(peer);
    }
  }
}

/// This rank expects no rows of `peer`, and does not wait for its notice. If `peer` has some, the
/// one that comes second finds it, here or in post().
void BoardRowPart::pass_over(int peer) {
  job_->from[group_rank(peer)].count = 0;
  check_count(peer, board_.pass_over(peer, job_->number));
}

void BoardRowPart::check_count(int peer, std::int64_t count) const {
  const std::int64_t expected = job_->expected.empty() ? count : job_->expected[group_rank(peer)];
  require(count == expected, ErrorKind::peer,
          "rank {}: exchange_rows: rank {} has {} rows for this rank, which expects {}",
          board_.name_of(board_.rank()), board_.name_of(peer), count, expected);
}

void BoardRowPart::check_wanted(int peer, bool is_wanted) const {
  require(is_wanted || rows_for(peer).empty(), ErrorKind::peer,
          "rank {}: exchange_rows: rank {} expects no rows of this rank, which has {} for it",
          board_.name_of(board_.rank()), board_.name_of(peer), rows_for(peer).size());
}

bool BoardRowPart::progress() {
  if (!is_posted_ && job_->all_ready() && board_.is_clear(job_->number)) post();
  std::erase_if(awaited_, [&](int peer) {
    if (!board_.has_posted_rows(peer, job_->number)) return false;
    take_from(peer);
    return true;
  });
  return is_posted_ && awaited_.empty();
}

void BoardRowPart::post() {
  const std::int64_t num_rows = share_out();
  RowNotice notice = num_rows > 0 ? place_rows(num_rows) : RowNotice();
  notice.label = job_->send.label;
  board_.post_rows(job_->number, notice, shares_);
  for (int peer = 0; peer < board_.size(); ++peer) {
    check_wanted(peer, !board_.has_passed_over(peer, job_->number));
  }
  job_->counters->bytes_near += num_rows * job_->send.row_bytes;
  is_posted_ = true;
}

/// Fills in the shares of all ranks of the board; returns how many rows they get.
std::int64_t BoardRowPart::share_out() {
  shares_.clear();
  std::int64_t num_rows = 0;
  for (int peer = 0; peer < board_.size(); ++peer) {
    const auto rows = rows_for(peer);
    check_wanted(peer, !board_.has_read_rows(peer, job_->number));
    shares_.push_back({.first = num_rows, .count = std::ssize(rows), .checksum = 0});
    if (job_->is_checked) shares_.back().checksum = row_checksum(job_->send, rows);
    num_rows += std::ssize(rows);
  }
  return num_rows;
}

/// Makes the head, and the copy of rows that lie where peers do not see them.
RowNotice BoardRowPart::place_rows(std::int64_t num_rows) {
  const RowSend& send = job_->send;
  const std::int64_t bytes =
      num_rows * (block_ != nullptr ? std::int64_t{sizeof(std::int32_t)} : send.row_bytes);
  head_ = buffers_.reserve(slot_, words_bytes() + bytes);
  ReaderWords(head_).clear(board_.size());
  RowNotice notice;
  notice.head = buffers_.name(slot_);
  std::byte* to = head_ + words_bytes();
  if (block_ == nullptr) {
    for (int peer = 0; peer < board_.size(); ++peer) {
      copy_rows(send, rows_for(peer), to);
      to += std::ssize(rows_for(peer)) * send.row_bytes;
    }
    notice.rows = {notice.head, words_bytes()};
    notice.stride_bytes = send.row_bytes;
    return notice;
  }
  for (int peer = 0; peer < board_.size(); ++peer) {
    const std::span<const std::int32_t> rows = rows_for(peer);
    if (!rows.empty()) std::memcpy(to, rows.data(), rows.size_bytes());
    to += rows.size_bytes();
  }
  notice.rows = {buffers_.name(block_->slot), send.base - block_->data};
  notice.stride_bytes = send.stride_bytes;
  notice.has_places = true;
  return notice;
}

void BoardRowPart::take_from(int peer) {
  const RowNotice notice = board_.rows_of(peer, job_->number);
  const RowShare share = board_.share_of(peer, job_->number);
  const Waiter self{board_.name_of(board_.rank()), static_cast<int>(job_->parts.size()), {}};
  check_label(self, job_->send.label, board_.name_of(peer), notice.label);
  PeerRows& from = job_->from[group_rank(peer)];
  check_count(peer, share.count);
  from.count = from.here = share.count;
  from.checksum = share.checksum;
  if (share.count > 0) {
    std::byte* const head = buffers_.of_peer(peer, notice.head);
    taken_.emplace_back(head);
    from.row_stride = from.tag_stride = notice.stride_bytes;
    if (notice.has_places) {
      from.rows = buffers_.of_peer(peer, notice.rows.buffer) + notice.rows.offset_bytes;
      from.places = reinterpret_cast<const std::int32_t*>(head + words_bytes()) + share.first;
    } else {
      from.rows = head + notice.rows.offset_bytes + share.first * notice.stride_bytes;
    }
    from.tags = from.rows + (job_->send.row_bytes - job_->send.tag_bytes);
  }
  board_.mark_read(peer, job_->number);
}

void BoardRowPart::let_go() noexcept {
  for (const ReaderWords& words : taken_) words.set(board_.rank(), job_->number);
  taken_.clear();
}

bool BoardRowPart::is_found() const {
  for (int peer = 0; is_posted_ && peer < board_.size(); ++peer) {
    const bool has_rows = shares_[static_cast<std::size_t>(peer)].count > 0;
    if (has_rows && !board_.has_read_rows(peer, job_->number)) return false;
  }
  return true;
}

/// Whether no peer reads what this rank has sent.
bool BoardRowPart::is_free() const {
  if (job_ == nullptr) return true;
  if (!is_posted_) return false;
  for (int peer = 0; head_ != nullptr && peer < board_.size(); ++peer) {
    const bool has_rows = shares_[static_cast<std::size_t>(peer)].count > 0;
    if (has_rows && !ReaderWords(head_).has_reached(peer, job_->number)) return false;
  }
  return true;
}

Awaited BoardRowPart::missing() const {
  RankList late;  // that keep this rank from posting
  for (int peer = 0; !is_posted_ && job_->all_ready() && peer < board_.size(); ++peer) {
    const bool is_awaited = peer != board_.rank() && job_->number > MemoryBoard::kPlaces;
    if (is_awaited && !board_.has_read_rows(peer, job_->number - MemoryBoard::kPlaces)) {
      late.add(board_.name_of(peer));
    }
  }
  RankList senders;
  for (const int peer : awaited_) senders.add(board_.name_of(peer));
  Awaited all;
  if (!late.empty()) all.add("rank " + late.text() + " to read of earlier rows", late.ranks());
  if (!senders.empty()) all.add("the rows of rank " + senders.text(), senders.ranks());
  return all;
}

}  // namespace

RowPartMaker board_rows(MemoryBoard& board, RowPool& pool) {
  return [&board, &pool] { return std::make_unique<BoardRowPart>(board, pool); };
}

}  // namespace moesaic
