#include "comm/memory_board.h"

#include <atomic>
#include <cstring>

namespace moesaic {

// The area of one rank, all parts aligned to cache lines:
//   posted            u64: number of mails posted
//   box 0, box 1      kMailBytes each
//   counts            2 * kPlaces times a u64, their exchange, a label, and an i64 for each rank
//   offers            kPlaces times an Offer, then a RowPlacement for each sender
//   sent              for each sender kPlaces times a Sent
//   messages          for each rank of the group 2 * kPlaces times a Message; none if all are here
struct MemoryBoard::Offer {
  std::uint64_t exchange;
  RowBufferName buffer;
  RowLabel label;
};

struct MemoryBoard::Sent {
  std::uint64_t exchange;  // whose rows have come
  std::uint64_t checksum;
};

struct alignas(64) MemoryBoard::Message {
  std::uint64_t exchange;
  std::uint64_t arrived_bytes;
  BoardPlace place;
};

namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t round_to_line(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

constexpr std::size_t kCountsHead = sizeof(std::uint64_t) + sizeof(RowLabel);

constexpr std::size_t counts_bytes(std::size_t ranks) {
  return round_to_line(kCountsHead + ranks * sizeof(std::int64_t));
}

constexpr std::size_t offer_bytes(std::size_t offer_head, std::size_t ranks) {
  return round_to_line(offer_head) + round_to_line(ranks * sizeof(RowPlacement));
}

constexpr std::size_t kSentBytes = round_to_line(MemoryBoard::kPlaces * 2 * sizeof(std::uint64_t));
constexpr std::size_t kCountsBegin = kLine + 2 * MemoryBoard::kMailBytes;

constexpr std::size_t offers_begin(std::size_t ranks) {
  return kCountsBegin + 2 * MemoryBoard::kPlaces * counts_bytes(ranks);
}

constexpr std::size_t sent_begin(std::size_t offer_head, std::size_t ranks) {
  return offers_begin(ranks) + MemoryBoard::kPlaces * offer_bytes(offer_head, ranks);
}

constexpr std::size_t messages_begin(std::size_t offer_head, std::size_t ranks) {
  return sent_begin(offer_head, ranks) + ranks * kSentBytes;
}

constexpr std::size_t messages_bytes(std::size_t message, int size, int group_size) {
  if (group_size <= size) return 0;
  return static_cast<std::size_t>(group_size) * 2 * MemoryBoard::kPlaces * message;
}

using Sequence = std::atomic_ref<std::uint64_t>;
static_assert(Sequence::is_always_lock_free, "sequence numbers must work between processes");

}  // namespace

std::size_t MemoryBoard::bytes_needed(int size, int group_size) {
  const auto ranks = static_cast<std::size_t>(size);
  return ranks *
         (messages_begin(sizeof(Offer), ranks) + messages_bytes(sizeof(Message), size, group_size));
}

MemoryBoard::MemoryBoard(std::shared_ptr<std::byte> memory, BoardSeat seat,
                         const WaitPolicy& policy)
    : memory_(std::move(memory)), seat_(std::move(seat)), policy_(policy) {}

std::size_t MemoryBoard::area_bytes() const noexcept {
  return messages_begin(sizeof(Offer), static_cast<std::size_t>(size())) +
         messages_bytes(sizeof(Message), size(), seat_.group_size);
}

std::byte* MemoryBoard::area(int of_rank) const noexcept {
  return memory_.get() + static_cast<std::size_t>(of_rank) * area_bytes();
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

MemoryBoard::Sent& MemoryBoard::sent(int from, int to, std::uint64_t exchange) const noexcept {
  std::byte* first = area(to) + sent_begin(sizeof(Offer), static_cast<std::size_t>(size()));
  static_assert(kPlaces * sizeof(Sent) <= kSentBytes);
  return reinterpret_cast<Sent*>(first +
                                 static_cast<std::size_t>(from) * kSentBytes)[exchange % kPlaces];
}

MemoryBoard::Message& MemoryBoard::message(int rank, int source,
                                           std::uint64_t exchange) const noexcept {
  std::byte* first = area(rank) + messages_begin(sizeof(Offer), static_cast<std::size_t>(size()));
  return reinterpret_cast<Message*>(
      first)[static_cast<std::size_t>(source) * 2 * kPlaces + exchange % (2 * kPlaces)];
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

void MemoryBoard::post_counts(std::uint64_t exchange, const RowLabel& label,
                              std::span<const std::int64_t> values) noexcept {
  std::uint64_t* mine = counts(rank(), exchange);
  *reinterpret_cast<RowLabel*>(mine + 1) = label;
  std::memcpy(reinterpret_cast<std::byte*>(mine) + kCountsHead, values.data(), values.size_bytes());
  Sequence(*mine).store(exchange, std::memory_order_release);
}

bool MemoryBoard::has_posted_counts(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(*counts(peer, exchange)).load(std::memory_order_acquire) == exchange;
}

std::int64_t MemoryBoard::count_from(int peer, std::uint64_t exchange) const noexcept {
  const auto* head = reinterpret_cast<const std::byte*>(counts(peer, exchange));
  return reinterpret_cast<const std::int64_t*>(head + kCountsHead)[rank()];
}

RowLabel MemoryBoard::counts_label(int peer, std::uint64_t exchange) const noexcept {
  return *reinterpret_cast<const RowLabel*>(counts(peer, exchange) + 1);
}

void MemoryBoard::offer_rows(std::uint64_t exchange, const RowOffer& its_offer) noexcept {
  Offer* mine = offer(rank(), exchange);
  mine->buffer = its_offer.buffer;
  mine->label = its_offer.label;
  std::memcpy(placements(rank(), exchange), its_offer.placements.data(),
              its_offer.placements.size_bytes());
  Sequence(mine->exchange).store(exchange, std::memory_order_release);
}

bool MemoryBoard::has_offered(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(offer(peer, exchange)->exchange).load(std::memory_order_acquire) == exchange;
}

MemoryBoard::RowOffer MemoryBoard::offer_of(int peer, std::uint64_t exchange) const noexcept {
  const Offer* theirs = offer(peer, exchange);
  return {theirs->buffer, theirs->label, {placements(peer, exchange) + rank(), 1}};
}

void MemoryBoard::mark_sent(int peer, std::uint64_t exchange, std::uint64_t checksum) noexcept {
  Sent& mine = sent(rank(), peer, exchange);
  mine.checksum = checksum;
  Sequence(mine.exchange).store(exchange, std::memory_order_release);
}

bool MemoryBoard::has_sent(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(sent(peer, rank(), exchange).exchange).load(std::memory_order_acquire) ==
         exchange;
}

std::uint64_t MemoryBoard::sent_checksum(int peer, std::uint64_t exchange) const noexcept {
  return sent(peer, rank(), exchange).checksum;
}

void MemoryBoard::announce(int source, std::uint64_t exchange, const BoardPlace& place,
                           std::int64_t bytes) noexcept {
  Message& mine = message(rank(), source, exchange);
  mine.place = place;
  mark_arrived(source, exchange, bytes);
  Sequence(mine.exchange).store(exchange, std::memory_order_release);
}

void MemoryBoard::mark_arrived(int source, std::uint64_t exchange, std::int64_t bytes) noexcept {
  Sequence(message(rank(), source, exchange).arrived_bytes)
      .store(static_cast<std::uint64_t>(bytes), std::memory_order_release);
}

bool MemoryBoard::has_announced(int peer, int source, std::uint64_t exchange) const noexcept {
  return Sequence(message(peer, source, exchange).exchange).load(std::memory_order_acquire) ==
         exchange;
}

BoardPlace MemoryBoard::announced_place(int peer, int source,
                                        std::uint64_t exchange) const noexcept {
  return message(peer, source, exchange).place;
}

std::int64_t MemoryBoard::arrived_bytes(int peer, int source,
                                        std::uint64_t exchange) const noexcept {
  return static_cast<std::int64_t>(
      Sequence(message(peer, source, exchange).arrived_bytes).load(std::memory_order_acquire));
}

}  // namespace moesaic
