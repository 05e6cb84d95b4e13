#include "comm/row_transport.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/checksum.h"

namespace moesaic {

class RowTransport::Exchange final : public Operation {
 public:
  Exchange(const Waiter& waiter, const Ways& ways, RowCounters& counters)
      : Operation(waiter, "exchange_rows") {
    job_.counters = &counters;
    for (const RowPartMaker& make : ways.parts) parts_.push_back(make());
    check_rows_ = static_cast<std::uint64_t>(ways.check_rows);
  }

  void start(std::uint64_t number, const RowSend& send, std::span<const std::int64_t> expected);
  [[nodiscard]] bool is_free() const noexcept {
    return Operation::is_free() &&
           std::ranges::all_of(parts_, [](const auto& part) { return part->is_free(); });
  }
  [[nodiscard]] bool is_found() const {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->is_found(); });
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
  [[nodiscard]] Awaited missing() const override;
  void let_go() noexcept override {
    for (const auto& part : parts_) part->let_go();
  }
  void note_failure() noexcept override;
  void list_rows();
  void compare_rows() const;
  void note(std::string_view what, std::int64_t rows, std::string_view missing = {}) const noexcept;

  std::vector<std::unique_ptr<RowPart>> parts_;
  RowJob job_;
  std::uint64_t check_rows_ = 0;
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
  job_.is_checked = check_rows_ > 0 && number % check_rows_ == 0;
  knows_rows_ = false;
  note("start", std::ssize(send.rows));
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
  if (done && job_.is_checked) compare_rows();
  if (done) note("done", std::ssize(rows_));
  return done;
}

/// What has come is what was sent.
void RowTransport::Exchange::compare_rows() const {
  const auto tag_bytes = static_cast<std::size_t>(job_.send.tag_bytes);
  const auto bytes = static_cast<std::size_t>(job_.send.row_bytes) - tag_bytes;
  std::size_t first = 0;
  for (std::size_t peer = 0; peer < job_.from.size(); ++peer) {
    const auto count = static_cast<std::size_t>(job_.from[peer].count);
    Checksum sum;
    for (std::size_t row = first; row < first + count; ++row) {
      sum.add({rows_[row], bytes});
      if (tag_bytes > 0) sum.add({tags_[row], tag_bytes});
    }
    require(count == 0 || sum.value() == job_.from[peer].checksum, ErrorKind::peer,
            "rank {} of {}: exchange_rows: {}: {} rows that rank {} sent arrived damaged: their "
            "checksum is {}, it was {}",
            waiter().rank, waiter().size, job_.send.label.text(), count, peer,
            checksum_text(sum.value()), checksum_text(job_.from[peer].checksum));
    first += count;
  }
}

void RowTransport::Exchange::note(std::string_view what, std::int64_t rows,
                                  std::string_view missing) const noexcept {
  ExchangeTrace* const trace = waiter().policy.idle->trace();
  if (trace == nullptr) return;
  trace->add({.what = what,
              .exchange = job_.number,
              .ranks = waiter().size,
              .label = job_.send.label,
              .rows = rows,
              .bytes = rows * job_.send.row_bytes,
              .missing = missing});
}

void RowTransport::Exchange::note_failure() noexcept {
  if (waiter().policy.idle->trace() == nullptr) return;
  try {
    note("gave up", 0, missing().text);
  } catch (...) {  // the failure itself matters more
  }
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

Awaited RowTransport::Exchange::missing() const {
  Awaited all;
  for (const auto& part : parts_) {
    const Awaited more = part->missing();
    all.add(more.text, more.ranks);
  }
  return all;
}

RowTransport::RowTransport(const Waiter& waiter, Ways ways)
    : waiter_(waiter), ways_(std::move(ways)) {}

/// Not before the others have found what this rank has posted last.
RowTransport::~RowTransport() {
  if (std::uncaught_exceptions() > 0 || !ways_.pool->buffers().go_with_rank()) return;
  const auto is_found = [](const Exchange& exchange) { return exchange.is_found(); };
  try {
    (void)wait_for(waiter_.policy, waiter_.policy.timeout,
                   [&] { return exchanges_.all_of(is_found); });
  } catch (...) {
    waiter_.policy.idle->keep(std::current_exception());
  }
}

PendingRows RowTransport::start(const RowSend& send, std::span<const std::int64_t> expected) {
  check_exchange(send, expected, waiter_);
  Exchange& exchange =
      exchanges_.next([&] { return std::make_unique<Exchange>(waiter_, ways_, counters_); });
  exchange.start(exchanges_.number(), send, expected);
  PendingRows rows(exchange);
  (void)exchange.advance();
  return rows;
}

}  // namespace moesaic
