#include "comm/row_transport.h"

#include <algorithm>
#include <utility>

namespace moesaic {

class RowTransport::Exchange final : public Operation {
 public:
  Exchange(const Waiter& waiter, const Ways& ways, RowCounters& counters)
      : Operation(waiter, "exchange_rows") {
    job_.counters = &counters;
    for (const auto& carrier : ways.carriers) parts_.push_back(carrier->make_part());
  }

  void start(std::uint64_t number, const RowSend& send, std::span<const std::int64_t> expected);
  [[nodiscard]] bool is_free() const noexcept {
    return Operation::is_free() &&
           std::ranges::all_of(parts_, [](const auto& part) { return part->is_free(); });
  }
  [[nodiscard]] bool has_sent() const {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->has_sent(); });
  }
  [[nodiscard]] std::int64_t num_here(int peer) const override {
    return job_.from[static_cast<std::size_t>(peer)].here;
  }
  void wait_for_more() override;
  void mark_ready(std::int64_t first, std::int64_t count) override;

 private:
  bool progress() override;
  [[nodiscard]] const ReceivedRows* received() const override {
    return knows_rows_ ? &received_ : nullptr;
  }
  [[nodiscard]] std::string missing() const override;
  void let_go() noexcept override {
    for (const auto& part : parts_) part->let_go();
  }
  void list_rows();

  std::vector<std::unique_ptr<RowPart>> parts_;
  RowJob job_;
  bool knows_rows_ = false;
  std::vector<std::int64_t> counts_;
  std::vector<const std::byte*> rows_;
  std::vector<const std::byte*> tags_;
  ReceivedRows received_;
};

void RowTransport::Exchange::start(std::uint64_t number, const RowSend& send,
                                   std::span<const std::int64_t> expected) {
  job_.number = number;
  job_.send = send;
  job_.expected = expected;
  job_.ready_rows = 0;
  split_rows(send, job_.parts);
  job_.from.assign(send.counts.size(), {});
  job_.from[static_cast<std::size_t>(waiter().rank)].count = 0;
  knows_rows_ = false;
  for (const auto& part : parts_) part->start(job_);
  Operation::start(number);
}

void RowTransport::Exchange::wait_for_more() {
  const auto num_here = [&] {
    std::int64_t sum = 0;
    for (const PeerRows& peer : job_.from) sum += peer.here;
    return sum;
  };
  const std::int64_t before = num_here();
  (void)wait_until([&] { return advance() || num_here() > before; });
}

void RowTransport::Exchange::mark_ready(std::int64_t first, std::int64_t count) {
  job_.ready_rows += count;
  for (const auto& part : parts_) part->mark_ready(first, count);
}

bool RowTransport::Exchange::progress() {
  bool done = true;
  for (const auto& part : parts_) done = part->progress() && done;
  if (!knows_rows_ &&
      std::ranges::all_of(job_.from, [](const PeerRows& peer) { return peer.count >= 0; })) {
    list_rows();
  }
  return done;
}

void RowTransport::Exchange::list_rows() {
  counts_.clear();
  rows_.clear();
  tags_.clear();
  for (const PeerRows& peer : job_.from) {
    counts_.push_back(peer.count);
    for (std::int64_t row = 0; row < peer.count; ++row) {
      const std::int64_t place = peer.place(row);
      rows_.push_back(peer.rows + place * peer.row_stride);
      if (job_.send.tag_bytes > 0) tags_.push_back(peer.tags + place * peer.tag_stride);
    }
  }
  received_ = {counts_, rows_, tags_};
  knows_rows_ = true;
}

std::string RowTransport::Exchange::missing() const {
  std::string text;
  for (const auto& part : parts_) {
    const std::string more = part->missing();
    if (!text.empty() && !more.empty()) text += " and ";
    text += more;
  }
  return text;
}

RowTransport::RowTransport(const Waiter& waiter, Ways ways)
    : waiter_(waiter), ways_(std::move(ways)) {}

RowTransport::~RowTransport() = default;

PendingRows RowTransport::start(const RowSend& send, std::span<const std::int64_t> expected) {
  check_exchange(send, expected, waiter_);
  Exchange& exchange =
      exchanges_.next([&] { return std::make_unique<Exchange>(waiter_, ways_, counters_); });
  exchange.start(exchanges_.number(), send, expected);
  PendingRows rows(exchange);
  if (!exchange.advance() && !ways_.have_messages && send.later_rows == 0) {
    (void)wait_for(waiter_.policy, ways_.patience,
                   [&] { return exchange.advance() || exchange.has_sent(); });
  }
  return rows;
}

}  // namespace moesaic
