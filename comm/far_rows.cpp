#include "comm/far_rows.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/far_receive.h"
#include "comm/far_send.h"

namespace moesaic {
namespace {

class FarRowPart final : public RowPart {
 public:
  explicit FarRowPart(const FarWay& way);
  ~FarRowPart() override;
  FarRowPart(const FarRowPart&) = delete;
  FarRowPart& operator=(const FarRowPart&) = delete;

  void start(RowJob& job) override;
  void mark_ready(std::int64_t first, std::int64_t count) override {
    for (FarSend& send : sends_) send.mark_ready(first, count);
  }
  bool progress() override;
  [[nodiscard]] Awaited missing() const override;
  void let_go() noexcept override {
    for (FarReader& reader : readers_) reader.let_go();
  }
  [[nodiscard]] bool is_found() const override {
    return std::ranges::all_of(inboxes_, [](const FarInbox& inbox) { return inbox.is_found(); });
  }
  [[nodiscard]] bool is_free() const override {
    return std::ranges::all_of(inboxes_, [](const FarInbox& inbox) { return inbox.is_free(); });
  }

 private:
  const NodeMap& nodes_;
  MemoryBoard& board_;
  RowArena arena_;
  RowJob* job_ = nullptr;
  std::vector<FarSend> sends_;          // a node each, the next one first
  std::vector<FarInbox> inboxes_;       // for ranks whose messages come here
  std::vector<FarReader> readers_;      // for all ranks of other nodes
  std::unique_ptr<Messages> messages_;  // gone before the memory that they are in
};

FarRowPart::FarRowPart(const FarWay& way)
    : nodes_(way.nodes), board_(way.board), arena_(way.buffers), messages_(way.make_messages()) {
  const int self = board_.name_of(board_.rank());
  const std::size_t own = nodes_.place_of(self).node;
  const std::size_t num_nodes = nodes_.nodes.size();
  for (std::size_t step = 1; step < num_nodes; ++step) {  // not all to the same one at once
    const std::size_t node = (own + step) % num_nodes;
    const std::vector<int>& ranks = nodes_.ranks_of(node);
    sends_.emplace_back(ranks[static_cast<std::size_t>(nodes_.agent_for(self, node))], ranks);
    for (const int source : ranks) {
      const int agent = nodes_.agent_for(source, own);
      if (agent == board_.rank()) inboxes_.emplace_back(source, board_);
      readers_.emplace_back(source, agent, board_, way.buffers);
    }
  }
}

/// If an error has ended the exchange, messages may still be leaving: who reads them goes on until
/// the process ends.
FarRowPart::~FarRowPart() {
  static std::mutex mutex;
  static std::vector<std::vector<FarSend>> leaving;
  if (messages_->unsent().empty()) return;
  const std::scoped_lock lock(mutex);
  leaving.push_back(std::move(sends_));
}

void FarRowPart::start(RowJob& job) {
  job_ = &job;
  messages_->clear();
  arena_.clear();
  for (FarInbox& inbox : inboxes_) inbox.start(job, arena_, *messages_);
  for (FarReader& reader : readers_) reader.start(job);
  for (FarSend& send : sends_) send.start(job, *messages_);
}

bool FarRowPart::progress() {
  bool done = messages_->progress();
  for (FarInbox& inbox : inboxes_) done = inbox.progress(arena_, *messages_) && done;
  for (FarReader& reader : readers_) done = reader.progress() && done;
  return done && job_->all_ready();
}

Awaited FarRowPart::missing() const {
  Awaited all;
  const RankList unsent = messages_->unsent();
  if (!unsent.empty()) all.add("rank " + unsent.text() + " to receive", unsent.ranks());
  for (int agent = 0; agent < board_.size(); ++agent) {
    RankList senders;
    for (const FarReader& reader : readers_) {
      if (reader.agent() == agent && !reader.has_all()) senders.add(reader.source());
    }
    if (senders.empty()) continue;
    std::string rows = "the rows of rank " + senders.text();
    if (agent != board_.rank()) {
      rows += fmt::format(" (by rank {})", board_.name_of(agent));
      all.ranks.push_back(board_.name_of(agent));
    }
    all.add(rows, senders.ranks());
  }
  return all;
}

}  // namespace

RowPartMaker far_rows(FarWay way) {
  return [way = std::move(way)] { return std::make_unique<FarRowPart>(way); };
}

}  // namespace moesaic
