#include "comm/memory_board.h"

#include <atomic>
#include <cstring>

namespace moesaic {

// The area of one rank, all parts aligned to cache lines:
//   posted            u64: number of mails posted
//   box 0, box 1      kMailBytes each
//   counts            2 * kPlaces times a u64, their number, and an i64 for each rank
//   offers            kPlaces times an Offer, then a RowPlacement for each sender
//   sent              for each sender kPlaces u64: the exchanges whose rows have come
struct MemoryBoard::Offer {
  std::uint64_t exchange;
  RowBufferName buffer;
};

namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t round_to_line(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

constexpr std::size_t counts_bytes(std::size_t ranks) {
  return round_to_line(sizeof(std::uint64_t) * (1 + ranks));
}

constexpr std::size_t offer_bytes(std::size_t offer_head, std::size_t ranks) {
  return round_to_line(offer_head) + round_to_line(ranks * sizeof(RowPlacement));
}

constexpr std::size_t kSentBytes = round_to_line(MemoryBoard::kPlaces * sizeof(std::uint64_t));
constexpr std::size_t kCountsBegin = kLine + 2 * MemoryBoard::kMailBytes;

constexpr std::size_t offers_begin(std::size_t ranks) {
  return kCountsBegin + 2 * MemoryBoard::kPlaces * counts_bytes(ranks);
}

constexpr std::size_t area_bytes(std::size_t offer_head, std::size_t ranks) {
  return offers_begin(ranks) + MemoryBoard::kPlaces * offer_bytes(offer_head, ranks) +
         ranks * kSentBytes;
}

using Sequence = std::atomic_ref<std::uint64_t>;
static_assert(Sequence::is_always_lock_free, "sequence numbers must work between processes");

}  // namespace

std::size_t MemoryBoard::bytes_needed(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return ranks * area_bytes(sizeof(Offer), ranks);
}

MemoryBoard::MemoryBoard(std::shared_ptr<std::byte> memory, BoardSeat seat,
                         const WaitPolicy& policy)
    : memory_(std::move(memory)), seat_(std::move(seat)), policy_(policy) {}

std::byte* MemoryBoard::area(int of_rank) const noexcept {
  const auto ranks = static_cast<std::size_t>(size());
  return memory_.get() + static_cast<std::size_t>(of_rank) * area_bytes(sizeof(Offer), ranks);
}

std::uint64_t& MemoryBoard::posted(int rank) const noexcept {
  return *reinterpret_cast<std::uint64_t*>(area(rank));
}

std::byte* MemoryBoard::box(int rank, std::uint64_t post) const noexcept {
  return area(rank) + kLine + (post & 1) * kMailBytes;
}

std::uint64_t* MemoryBoard::counts(int rank, std::uint64_t number) const noexcept {
  const std::size_t bytes = counts_bytes(static_cast<std::size_t>(size()));
  return reinterpret_cast<std::uint64_t*>(area(rank) + kCountsBegin +
                                          number % (2 * kPlaces) * bytes);
}

MemoryBoard::Offer* MemoryBoard::offer(int rank, std::uint64_t exchange) const noexcept {
  const auto ranks = static_cast<std::size_t>(size());
  return reinterpret_cast<Offer*>(area(rank) + offers_begin(ranks) +
                                  exchange % kPlaces * offer_bytes(sizeof(Offer), ranks));
}

RowPlacement* MemoryBoard::placements(int rank, std::uint64_t exchange) const noexcept {
  return reinterpret_cast<RowPlacement*>(reinterpret_cast<std::byte*>(offer(rank, exchange)) +
                                         round_to_line(sizeof(Offer)));
}

std::uint64_t& MemoryBoard::sent(int from, int to, std::uint64_t exchange) const noexcept {
  std::byte* first = area(to + 1) - static_cast<std::size_t>(size()) * kSentBytes;
  return reinterpret_cast<std::uint64_t*>(first + static_cast<std::size_t>(from) *
                                                      kSentBytes)[exchange % kPlaces];
}

void MemoryBoard::post(std::span<const std::byte> mail, const char* call) {
  require(mail.size() <= kMailBytes, ErrorKind::internal, "a mail of {} bytes", mail.size());
  const std::uint64_t post = ++posts_;
  if (!mail.empty()) std::memcpy(box(rank(), post), mail.data(), mail.size());
  Sequence(posted(rank())).store(post, std::memory_order_release);
  int peer = 0;  // all below have posted
  const auto all_posted = [&] {
    while (peer < size() && Sequence(posted(peer)).load(std::memory_order_acquire) >= post) ++peer;
    return peer == size();
  };
  wait_or_fail(policy_, all_posted, [&] {
    RankList missing;
    for (int p = peer; p < size(); ++p) {
      if (Sequence(posted(p)).load(std::memory_order_acquire) < post) missing.add(name_of(p));
    }
    return fmt::format("rank {} of {}: {}: waiting for rank {}", name_of(rank()), size(), call,
                       missing.text());
  });
}

const std::byte* MemoryBoard::mail_of(int peer) const noexcept {
  return box(peer, posts_);
}

void MemoryBoard::post_counts(std::uint64_t number, std::span<const std::int64_t> values) noexcept {
  std::uint64_t* mine = counts(rank(), number);
  std::memcpy(mine + 1, values.data(), values.size_bytes());
  Sequence(*mine).store(number, std::memory_order_release);
}

bool MemoryBoard::has_posted_counts(int peer, std::uint64_t number) const noexcept {
  return Sequence(*counts(peer, number)).load(std::memory_order_acquire) == number;
}

std::int64_t MemoryBoard::count_from(int peer, std::uint64_t number) const noexcept {
  return static_cast<std::int64_t>(counts(peer, number)[1 + rank()]);
}

void MemoryBoard::offer_rows(std::uint64_t exchange, const RowBufferName& name,
                             std::span<const RowPlacement> rows) noexcept {
  Offer* mine = offer(rank(), exchange);
  mine->buffer = name;
  std::memcpy(placements(rank(), exchange), rows.data(), rows.size_bytes());
  Sequence(mine->exchange).store(exchange, std::memory_order_release);
}

bool MemoryBoard::has_offered(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(offer(peer, exchange)->exchange).load(std::memory_order_acquire) == exchange;
}

RowBufferName MemoryBoard::offered_buffer(int peer, std::uint64_t exchange) const noexcept {
  return offer(peer, exchange)->buffer;
}

RowPlacement MemoryBoard::offered_placement(int peer, std::uint64_t exchange) const noexcept {
  return placements(peer, exchange)[rank()];
}

void MemoryBoard::mark_sent(int peer, std::uint64_t exchange) noexcept {
  Sequence(sent(rank(), peer, exchange)).store(exchange, std::memory_order_release);
}

bool MemoryBoard::has_sent(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(sent(peer, rank(), exchange)).load(std::memory_order_acquire) == exchange;
}

}  // namespace moesaic
