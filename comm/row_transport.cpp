#include "comm/row_transport.h"

#include <utility>

namespace moesaic {

class RowTransport::Exchange final : public Operation {
 public:
  Exchange(const Waiter& waiter, const Ways& ways, std::size_t slot)
      : Operation(waiter, "exchange_rows"), buffers_(*ways.buffers) {
    job_.slot = slot;
    for (const auto& carrier : ways.carriers) parts_.push_back(carrier->make_part());
  }

  void start(std::uint64_t number, const RowSend& send, std::span<const std::int64_t> recv_counts,
             PendingCounts counts) {
    job_.number = number;
    job_.send = send;
    recv_counts_ = recv_counts;
    counts_ = std::move(counts);
    has_begun_ = false;
    Operation::start(number);
  }
  [[nodiscard]] bool has_sent() const {
    bool sent = has_begun_;
    for (const auto& part : parts_) sent = sent && part->has_sent();
    return sent;
  }
  void give_up() noexcept override {
    Operation::give_up();
    counts_.give_up();
  }
  [[nodiscard]] std::string missing() const override;

 private:
  bool progress() override;
  [[nodiscard]] std::span<const std::byte> received() const override {
    return {job_.received, static_cast<std::size_t>(placed_bytes(job_.placements))};
  }
  void begin();

  RowBuffers& buffers_;
  std::vector<std::unique_ptr<RowPart>> parts_;
  std::span<const std::int64_t> recv_counts_;
  PendingCounts counts_;  // if `recv_counts_` are not known yet
  bool has_begun_ = false;
  RowJob job_;
};

void RowTransport::Exchange::begin() {
  check_recv_counts(recv_counts_, job_.send.row_bytes, waiter());
  place_rows(recv_counts_, job_.send.row_bytes, job_.placements);
  split_rows(job_.send, job_.parts);
  job_.received = buffers_.reserve(job_.slot, placed_bytes(job_.placements));
  for (const auto& part : parts_) part->start(job_);
  has_begun_ = true;
}

bool RowTransport::Exchange::progress() {
  if (!has_begun_) {
    if (!counts_.is_done()) return false;
    counts_.reset();
    begin();
  }
  bool done = true;
  for (const auto& part : parts_) done = part->progress() && done;
  return done;
}

std::string RowTransport::Exchange::missing() const {
  if (!has_begun_) return counts_.missing();
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

PendingRows RowTransport::start(const RowSend& send, std::span<const std::int64_t> recv_counts,
                                PendingCounts counts) {
  check_row_send(send, recv_counts.size(), waiter_);
  Exchange& exchange = exchanges_.next(
      [&] { return std::make_unique<Exchange>(waiter_, ways_, exchanges_.size()); });
  exchange.start(exchanges_.number(), send, recv_counts, std::move(counts));
  PendingRows rows(exchange);
  if (!exchange.advance() && ways_.patience.count() > 0) {
    (void)wait_for(waiter_.policy, ways_.patience,
                   [&] { return exchange.advance() || exchange.has_sent(); });
  }
  return rows;
}

}  // namespace moesaic
