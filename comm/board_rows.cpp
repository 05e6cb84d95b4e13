#include "comm/board_rows.h"

#include "base/error.h"

namespace moesaic {
namespace {

class BoardRowPart final : public RowPart {
 public:
  BoardRowPart(MemoryBoard& board, RowBuffers& buffers) : board_(board), buffers_(buffers) {}

  void start(const RowJob& job) override;
  bool progress() override;
  [[nodiscard]] bool has_sent() const override { return unsent_.empty(); }
  [[nodiscard]] std::string missing() const override;

 private:
  [[nodiscard]] std::size_t group_rank(int peer) const {
    return static_cast<std::size_t>(board_.name_of(peer));
  }
  void send_to(int peer);

  MemoryBoard& board_;
  RowBuffers& buffers_;
  const RowJob* job_ = nullptr;
  // By their ranks on the board:
  std::vector<int> unsent_;               // peers that rows have to go to
  std::vector<int> awaited_;              // peers whose rows have not come
  std::vector<RowPlacement> placements_;  // [board ranks]
};

void BoardRowPart::start(const RowJob& job) {
  job_ = &job;
  unsent_.clear();
  awaited_.clear();
  placements_.clear();
  for (int step = 1; step < board_.size(); ++step) {  // not all to the same receiver at once
    const int peer = (board_.rank() + step) % board_.size();
    if (!job.parts[group_rank(peer)].empty()) unsent_.push_back(peer);
  }
  for (int peer = 0; peer < board_.size(); ++peer) {
    placements_.push_back(job.placements[group_rank(peer)]);
    if (placements_.back().bytes > 0) awaited_.push_back(peer);
  }
  board_.offer_rows(job.number, buffers_.name(job.slot), placements_);
}

bool BoardRowPart::progress() {
  std::erase_if(unsent_, [&](int peer) {
    if (!board_.has_offered(peer, job_->number)) return false;
    send_to(peer);
    return true;
  });
  std::erase_if(awaited_, [&](int peer) { return board_.has_sent(peer, job_->number); });
  return unsent_.empty() && awaited_.empty();
}

void BoardRowPart::send_to(int peer) {
  const std::span<const std::int32_t> rows = job_->parts[group_rank(peer)];
  const RowPlacement place = board_.offered_placement(peer, job_->number);
  const auto bytes = static_cast<std::int64_t>(rows.size()) * job_->send.row_bytes;
  require(place.bytes == bytes, ErrorKind::peer,
          "rank {}: exchange_rows: {} bytes for rank {}, which expects {}",
          board_.name_of(board_.rank()), bytes, board_.name_of(peer), place.bytes);
  std::byte* buffer = buffers_.of_peer(peer, board_.offered_buffer(peer, job_->number));
  copy_rows(job_->send, rows, buffer + place.offset_bytes);
  board_.mark_sent(peer, job_->number);
}

std::string BoardRowPart::missing() const {
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
