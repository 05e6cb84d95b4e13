// Rows that travel with checksums (CommOptions::check_rows), and what becomes of a damaged byte.

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/transport_pair.h"

namespace moesaic {
namespace {

using test::TransportPair;

struct CheckedRanks {
  int ranks;
  int per_node;
  std::int64_t check_rows;
};

class CheckedRows : public testing::TestWithParam<CheckedRanks> {};

TEST_P(CheckedRows, do_what_every_transport_must) {
  const auto [ranks, per_node, check_rows] = GetParam();
  run_thread_ranks(ranks, [](Communicator& comm) { conformance::everything(comm, 300); },
                   {.ranks_per_node = per_node, .check_rows = check_rows});
}

INSTANTIATE_TEST_SUITE_P(Sizes, CheckedRows,
                         testing::Values(CheckedRanks{3, 1, 1}, CheckedRanks{4, 2, 2}));

/// Damages a byte of each buffer whose owner has written it, when a peer looks for it.
class DamagingBuffers final : public RowBuffers {
 public:
  explicit DamagingBuffers(std::size_t victim) : victim_(victim) {}
  std::byte* reserve(std::size_t slot, std::int64_t bytes) override {
    return buffers_.reserve(slot, bytes);
  }
  [[nodiscard]] RowBufferName name(std::size_t slot) const override { return buffers_.name(slot); }
  std::byte* of_peer(int peer, const RowBufferName& name) override {
    std::byte* const buffer = buffers_.of_peer(peer, name);
    buffer[victim_] ^= std::byte{1};
    return buffer;
  }
  [[nodiscard]] bool go_with_rank() const noexcept override { return buffers_.go_with_rank(); }

 private:
  std::size_t victim_;
  ProcessRowBuffers::Memory memory_;
  ProcessRowBuffers buffers_{memory_};
};

/// Damages a byte of a message that has more than its head, before its checksums.
void damage(std::vector<std::byte>& message) {
  if (message.size() > 256) message[message.size() - 64] ^= std::byte{1};
}

constexpr std::int64_t kRowBytes = 100;
constexpr std::int64_t kRows = 4;
/// Where a byte of the second row is in a copy of the rows: before these stand words of readers.
constexpr std::size_t kVictim = 64 + kRowBytes + 7;

/// The error that rank 1 of two gets from the exchange number `exchange`, the first of which is 1
/// and the only one in which rank 0 sends rows, which are damaged on their way.
std::string error_of_receiver(bool is_far, std::int64_t check_rows, int exchange) {
  std::deque<ProcessRowBuffers::Memory> memories;  // of each rank
  TransportPair ranks({.is_far = is_far,
                       .check_rows = check_rows,
                       .make_buffers = [&]() -> std::unique_ptr<RowBuffers> {
                         if (is_far)
                           return std::make_unique<ProcessRowBuffers>(memories.emplace_back());
                         return std::make_unique<DamagingBuffers>(kVictim);
                       },
                       .wrap =
                           [](std::unique_ptr<Messages> messages) {
                             return test::changing_messages(std::move(messages), damage);
                           }});
  const std::array<std::byte, kRowBytes * kRows> matrix{};
  for (int number = 1; number <= exchange; ++number) {
    std::vector<std::int32_t> rows(number == exchange ? kRows : 0);
    std::iota(rows.begin(), rows.end(), 0);
    const std::array<std::int64_t, 2> to_one = {0, std::ssize(rows)};
    try {
      ranks.run({.base = matrix.data(),
                 .row_bytes = kRowBytes,
                 .stride_bytes = kRowBytes,
                 .rows = rows,
                 .counts = to_one,
                 .tag_bytes = 8,
                 .label = RowLabel{.step = number, .layer = 3}.at("results")});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      return error.what();
    }
  }
  return "no error";
}

TEST(CheckedRows, a_damaged_byte_is_told_with_sender_receiver_and_place) {
  for (const bool is_far : {false, true}) {
    const std::string message = error_of_receiver(is_far, 3, 3);
    EXPECT_EQ(message.substr(0, message.find(':', 60)),
              "rank 1 of 2: exchange_rows: pass 3, layer 3, results: 4 rows that rank 0 sent "
              "arrived damaged")
        << message;
    EXPECT_EQ(error_of_receiver(is_far, 3, 4), "no error");
    EXPECT_EQ(error_of_receiver(is_far, 0, 3), "no error");
  }
}

}  // namespace
}  // namespace moesaic
