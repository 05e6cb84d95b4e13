#include "comm/board_collectives.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace moesaic {
namespace {

/// From here on a sum is shared out: each rank adds one slice of the values.
constexpr std::size_t kSliceFromBytes = 4096;

/// Calls body(first, count) for pieces of `total` elements that fit a mail of `element_bytes` each;
/// once, with nothing, if total is 0.
template <typename Body>
void for_each_mail(std::size_t total, std::size_t element_bytes, Body&& body) {
  const std::size_t piece = MemoryBoard::kMailBytes / element_bytes;
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(piece, total - first);
    body(first, count);
    first += count;
  } while (first < total);
}

/// values[i] = op(...op(op(rank 0's, rank 1's), rank 2's)...), from the mails just posted.
template <typename Op>
void reduce_mails(const MemoryBoard& board, std::size_t first, std::span<std::int64_t> values,
                  Op op) {
  const auto mail_of = [&](int peer) {
    return reinterpret_cast<const std::int64_t*>(board.mail_of(peer)) + first;
  };
  std::memcpy(values.data(), mail_of(0), values.size_bytes());
  for (int peer = 1; peer < board.size(); ++peer) {
    const std::int64_t* const theirs = mail_of(peer);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = op(values[i], theirs[i]);
  }
}

template <typename Op>
void reduce(MemoryBoard& board, const char* call, std::span<std::int64_t> values, Op op) {
  for_each_mail(values.size(), sizeof(std::int64_t), [&](std::size_t first, std::size_t count) {
    const std::span<std::int64_t> piece = values.subspan(first, count);
    board.post(std::as_bytes(piece), call);
    if (!piece.empty()) reduce_mails(board, 0, piece, op);
  });
}

}  // namespace

void BoardCollectives::barrier() {
  board_.post({}, "barrier");
}

void BoardCollectives::broadcast(std::span<std::byte> data, int root) {
  const bool is_root = board_.rank() == root;
  for_each_mail(data.size(), 1, [&](std::size_t first, std::size_t count) {
    const std::span<std::byte> piece = data.subspan(first, count);
    board_.post(is_root ? piece : std::span<std::byte>(), "broadcast");
    if (!is_root && count > 0) std::memcpy(piece.data(), board_.mail_of(root), count);
  });
}

void BoardCollectives::sum(std::span<std::int64_t> values) {
  if (board_.size() > 2 && values.size_bytes() >= kSliceFromBytes) return sum_in_slices(values);
  reduce(board_, "sum", values, std::plus<>());
}

void BoardCollectives::max(std::span<std::int64_t> values) {
  reduce(board_, "max", values, [](auto a, auto b) { return std::max(a, b); });
}

void BoardCollectives::sum_in_slices(std::span<std::int64_t> values) {
  const auto ranks = static_cast<std::size_t>(board_.size());
  const auto self = static_cast<std::size_t>(board_.rank());
  for_each_mail(values.size(), sizeof(std::int64_t), [&](std::size_t first, std::size_t count) {
    const std::span<std::int64_t> piece = values.subspan(first, count);
    const auto slice_begin = [&](std::size_t rank) { return count * rank / ranks; };
    board_.post(std::as_bytes(piece), "sum");
    const std::size_t begin = slice_begin(self);
    const std::span<std::int64_t> mine = piece.subspan(begin, slice_begin(self + 1) - begin);
    if (!mine.empty()) reduce_mails(board_, begin, mine, std::plus<>());
    board_.post(std::as_bytes(mine), "sum");
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const std::size_t bytes = (slice_begin(peer + 1) - slice_begin(peer)) * sizeof(std::int64_t);
      std::memcpy(piece.data() + slice_begin(peer), board_.mail_of(static_cast<int>(peer)), bytes);
    }
  });
}

void BoardCollectives::all_gather(std::span<const std::byte> send, std::span<std::byte> recv) {
  require(recv.size() == send.size() * static_cast<std::size_t>(board_.size()), ErrorKind::internal,
          "all_gather: {} bytes for {} ranks with {} each", recv.size(), board_.size(),
          send.size());
  for_each_mail(send.size(), 1, [&](std::size_t first, std::size_t count) {
    board_.post(send.subspan(first, count), "all_gather");
    for (int peer = 0; peer < board_.size() && count > 0; ++peer) {
      std::memcpy(recv.data() + static_cast<std::size_t>(peer) * send.size() + first,
                  board_.mail_of(peer), count);
    }
  });
}

}  // namespace moesaic
