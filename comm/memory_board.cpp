#include "comm/memory_board.h"

#include <atomic>
#include <cstring>

namespace moesaic {

// The area of one rank, all parts aligned to cache lines:
//   posted            u64: number of mails posted
//   box 0, box 1      kMailBytes each
//   notices           kPlaces times a Notice, then a RowShare for each receiver
//   read              for each sender kPlaces times a u64
//   messages          for each rank of the group 2 * kPlaces times a Message; none if all are here
struct MemoryBoard::Notice {
  std::uint64_t exchange;
  RowNotice rows;
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

constexpr std::size_t notice_bytes(std::size_t notice_head, std::size_t ranks) {
  return round_to_line(notice_head) + round_to_line(ranks * sizeof(RowShare));
}

constexpr std::size_t kReadBytes = round_to_line(MemoryBoard::kPlaces * sizeof(std::uint64_t));
constexpr std::size_t kNoticesBegin = kLine + 2 * MemoryBoard::kMailBytes;

constexpr std::size_t read_begin(std::size_t notice_head, std::size_t ranks) {
  return kNoticesBegin + MemoryBoard::kPlaces * notice_bytes(notice_head, ranks);
}

constexpr std::size_t messages_begin(std::size_t notice_head, std::size_t ranks) {
  return read_begin(notice_head, ranks) + ranks * kReadBytes;
}

constexpr std::size_t messages_bytes(std::size_t message, int size, int group_size) {
  if (group_size <= size) return 0;
  return static_cast<std::size_t>(group_size) * 2 * MemoryBoard::kPlaces * message;
}

/// What a rank does with a notice, in the order in which it may.
enum class Tick : std::uint64_t { passing = 0, passed_over = 1, read = 2 };

constexpr std::uint64_t ticks(std::uint64_t exchange, Tick tick) {
  return 4 * exchange + static_cast<std::uint64_t>(tick);
}

using Sequence = std::atomic_ref<std::uint64_t>;
static_assert(Sequence::is_always_lock_free, "sequence numbers must work between processes");

}  // namespace

std::size_t MemoryBoard::bytes_needed(int size, int group_size) {
  const auto ranks = static_cast<std::size_t>(size);
  return ranks * (messages_begin(sizeof(Notice), ranks) +
                  messages_bytes(sizeof(Message), size, group_size));
}

MemoryBoard::MemoryBoard(std::shared_ptr<std::byte> memory, BoardSeat seat,
                         const WaitPolicy& policy)
    : memory_(std::move(memory)), seat_(std::move(seat)), policy_(policy) {}

std::size_t MemoryBoard::area_bytes() const noexcept {
  return messages_begin(sizeof(Notice), static_cast<std::size_t>(size())) +
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

MemoryBoard::Notice& MemoryBoard::notice(int rank, std::uint64_t exchange) const noexcept {
  const auto ranks = static_cast<std::size_t>(size());
  return *reinterpret_cast<Notice*>(area(rank) + kNoticesBegin +
                                    exchange % kPlaces * notice_bytes(sizeof(Notice), ranks));
}

RowShare* MemoryBoard::shares(int rank, std::uint64_t exchange) const noexcept {
  return reinterpret_cast<RowShare*>(reinterpret_cast<std::byte*>(&notice(rank, exchange)) +
                                     round_to_line(sizeof(Notice)));
}

std::uint64_t& MemoryBoard::read(int from, int to, std::uint64_t exchange) const noexcept {
  std::byte* first = area(to) + read_begin(sizeof(Notice), static_cast<std::size_t>(size()));
  return reinterpret_cast<std::uint64_t*>(first + static_cast<std::size_t>(from) *
                                                      kReadBytes)[exchange % kPlaces];
}

MemoryBoard::Message& MemoryBoard::message(int rank, int source,
                                           std::uint64_t exchange) const noexcept {
  std::byte* first = area(rank) + messages_begin(sizeof(Notice), static_cast<std::size_t>(size()));
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
    return Awaited{fmt::format("rank {} of {}: {}: waiting for rank {}", name_of(rank()), size(),
                               call, missing.text()),
                   missing.ranks()};
  });
}

const std::byte* MemoryBoard::mail_of(int peer) const noexcept {
  return box(peer, posts_);
}

void MemoryBoard::post_rows(std::uint64_t exchange, const RowNotice& rows,
                            std::span<const RowShare> its_shares) noexcept {
  Notice& mine = notice(rank(), exchange);
  mine.rows = rows;
  std::memcpy(shares(rank(), exchange), its_shares.data(), its_shares.size_bytes());
  Sequence(mine.exchange).store(exchange, std::memory_order_seq_cst);
}

bool MemoryBoard::is_clear(std::uint64_t exchange) const noexcept {
  if (exchange <= kPlaces) return true;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !has_read_rows(peer, exchange - kPlaces)) return false;
  }
  return true;
}

bool MemoryBoard::has_read_rows(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(read(rank(), peer, exchange)).load(std::memory_order_acquire) >=
         ticks(exchange, Tick::passed_over);
}

bool MemoryBoard::has_passed_over(int peer, std::uint64_t exchange) const noexcept {
  const std::uint64_t last = Sequence(read(rank(), peer, exchange)).load(std::memory_order_seq_cst);
  return last == ticks(exchange, Tick::passing) || last == ticks(exchange, Tick::passed_over);
}

bool MemoryBoard::has_posted_rows(int peer, std::uint64_t exchange) const noexcept {
  return Sequence(notice(peer, exchange).exchange).load(std::memory_order_seq_cst) == exchange;
}

RowNotice MemoryBoard::rows_of(int peer, std::uint64_t exchange) const noexcept {
  return notice(peer, exchange).rows;
}

RowShare MemoryBoard::share_of(int peer, std::uint64_t exchange) const noexcept {
  return shares(peer, exchange)[rank()];
}

void MemoryBoard::mark_read(int peer, std::uint64_t exchange) noexcept {
  Sequence(read(peer, rank(), exchange))
      .store(ticks(exchange, Tick::read), std::memory_order_release);
}

std::int64_t MemoryBoard::pass_over(int peer, std::uint64_t exchange) noexcept {
  const Sequence last(read(peer, rank(), exchange));
  last.store(ticks(exchange, Tick::passing), std::memory_order_seq_cst);
  const std::int64_t count = has_posted_rows(peer, exchange) ? share_of(peer, exchange).count : 0;
  last.store(ticks(exchange, Tick::passed_over), std::memory_order_release);
  return count;
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
