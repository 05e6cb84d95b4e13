#include "comm/checked_communicator.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/forwarding_communicator.h"
#include "comm/row_send.h"

namespace moesaic {
namespace {

/// What a rank is about to do. Trivial, so that it can travel.
struct Intent {
  std::array<char, 64> call{};
  std::array<char, 16> what_a{};  // what the arguments mean
  std::array<char, 16> what_b{};
  std::int64_t a = 0;  // arguments that must agree
  std::int64_t b = 0;

  bool operator==(const Intent&) const = default;
};

/// An argument that must be the same on all ranks.
struct Argument {
  std::string_view name;
  std::int64_t value = 0;
};

template <std::size_t N>
std::array<char, N> fixed(std::string_view text) {
  std::array<char, N> out{};
  text.copy(out.data(), N - 1);
  return out;
}

std::string describe(const Intent& intent) {
  std::string text = intent.call.data();
  if (intent.what_a[0] != 0) text += fmt::format(" {} {}", intent.what_a.data(), intent.a);
  if (intent.what_b[0] != 0) text += fmt::format(" {} {}", intent.what_b.data(), intent.b);
  return text;
}

class CheckedCommunicator final : public ForwardingCommunicator {
 public:
  explicit CheckedCommunicator(std::unique_ptr<Communicator> base)
      : ForwardingCommunicator(*base), owned_(std::move(base)) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    agree("split");
    require(color >= 0, ErrorKind::internal, "split: the color is {}", color);
    return std::make_unique<CheckedCommunicator>(base().split(color, key));
  }
  std::unique_ptr<Communicator> split_node() override {
    agree("split_node");
    return std::make_unique<CheckedCommunicator>(base().split_node());
  }
  void barrier() override {
    agree("barrier");
    base().barrier();
  }
  void broadcast(std::span<std::byte> data, int root) override {
    agree("broadcast", bytes_of(data), {"root", root});
    require(root >= 0 && root < size(), ErrorKind::internal, "broadcast: root {} of {} ranks", root,
            size());
    base().broadcast(data, root);
  }
  void sum(std::span<std::int64_t> values) override {
    agree("sum", bytes_of(values));
    base().sum(values);
  }
  void max(std::span<std::int64_t> values) override {
    agree("max", bytes_of(values));
    base().max(values);
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    agree("all_gather", bytes_of(send));
    base().all_gather(send, recv);
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override;
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    agree("allocate_shared", {"bytes", bytes});
    return base().allocate_shared(bytes);
  }

 private:
  template <typename T>
  static Argument bytes_of(std::span<T> data) {
    return {"bytes", static_cast<std::int64_t>(data.size_bytes())};
  }
  void agree(std::string_view call, Argument a = {}, Argument b = {});
  void agree_on_counts(std::span<const std::int64_t> send_counts,
                       std::span<const std::int64_t> recv_counts);

  std::unique_ptr<Communicator> owned_;  // the base
};

void CheckedCommunicator::agree(std::string_view call, Argument a, Argument b) {
  const Intent mine{fixed<64>(call), fixed<16>(a.name), fixed<16>(b.name), a.value, b.value};
  std::vector<Intent> all(static_cast<std::size_t>(size()));
  base().all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  std::string text;
  bool same = true;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    same = same && all[peer] == all[0];
    text += fmt::format("{}rank {}: {}", peer == 0 ? "" : "; ", peer, describe(all[peer]));
  }
  require(same, ErrorKind::internal, "the ranks do not make the same call: {}", text);
}

void CheckedCommunicator::agree_on_counts(std::span<const std::int64_t> send_counts,
                                          std::span<const std::int64_t> recv_counts) {
  const std::size_t ranks = send_counts.size();
  std::vector<std::int64_t> sent(ranks * ranks);      // [sender, receiver]
  std::vector<std::int64_t> expected(ranks * ranks);  // [receiver, sender]
  base().all_gather(std::as_bytes(send_counts), std::as_writable_bytes(std::span(sent)));
  base().all_gather(std::as_bytes(recv_counts), std::as_writable_bytes(std::span(expected)));
  std::string text;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      if (sent[from * ranks + to] == expected[to * ranks + from]) continue;
      text +=
          fmt::format("{}rank {} sends {} to rank {}, which expects {}", text.empty() ? "" : "; ",
                      from, sent[from * ranks + to], to, expected[to * ranks + from]);
    }
  }
  require(text.empty(), ErrorKind::internal, "exchange_rows: the row counts do not fit: {}", text);
}

PendingRows CheckedCommunicator::exchange_rows(const RowSend& send,
                                               std::span<const std::int64_t> expected) {
  check_exchange(send, expected, {rank(), size(), {}});
  agree("exchange_rows", {"row_bytes", send.row_bytes}, {"tag_bytes", send.tag_bytes});
  agree(expected.empty() ? "exchange of any rows" : "exchange of known rows");
  agree(send.label.text());
  if (!expected.empty()) agree_on_counts(send.counts, expected);
  for (const std::int32_t row : send.rows) {
    require(row >= 0, ErrorKind::internal, "exchange_rows: row {}", row);
  }
  return base().exchange_rows(send, expected);
}

}  // namespace

std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> base) {
  return std::make_unique<CheckedCommunicator>(std::move(base));
}

}  // namespace moesaic
