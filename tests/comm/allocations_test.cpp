// After the first steps an exchange allocates nothing.

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/comm/transport_pair.h"
#include "tests/support/allocations.h"

namespace moesaic {
namespace {

std::int64_t num_of_letters = 0;

/// Of all but letters between threads, which have memory of their own.
std::int64_t counted() {
  return test::allocations_of_thread() - num_of_letters;
}

class UncountedMessages final : public test::ForwardingMessages {
 public:
  using ForwardingMessages::ForwardingMessages;
  void send(int peer, int tag, std::span<const std::byte> data) override {
    const std::int64_t before = test::allocations_of_thread();
    ForwardingMessages::send(peer, tag, data);
    num_of_letters += test::allocations_of_thread() - before;
  }
};

/// Of the exchanges after the first ones.
std::int64_t allocations_of_exchanges(bool is_far) {
  constexpr std::int64_t kRowsOfEach = 1500;  // several messages between nodes
  constexpr std::int64_t kBytesOfEach = 100;
  std::deque<ProcessRowBuffers::Memory> memories;  // of each rank
  test::TransportPair ranks(
      {.is_far = is_far,
       .make_buffers = [&] { return std::make_unique<ProcessRowBuffers>(memories.emplace_back()); },
       .wrap =
           [](std::unique_ptr<Messages> messages) {
             return std::make_unique<UncountedMessages>(std::move(messages));
           }});
  const std::vector<std::byte> matrix(kRowsOfEach * kBytesOfEach);
  std::vector<std::int32_t> rows(kRowsOfEach);
  std::iota(rows.begin(), rows.end(), 0);
  const std::array<std::int64_t, 2> to_one = {0, kRowsOfEach};
  std::int64_t before = 0;
  for (int exchange = 0; exchange < 60; ++exchange) {
    if (exchange == 30) before = counted();
    ranks.run({.base = matrix.data(),
               .row_bytes = kBytesOfEach,
               .stride_bytes = kBytesOfEach,
               .rows = rows,
               .counts = to_one,
               .tag_bytes = 8});
  }
  return counted() - before;
}

TEST(Allocations, exchanges_need_none_after_the_first_ones) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  EXPECT_EQ(allocations_of_exchanges(false), 0) << "inside a node";
  EXPECT_EQ(allocations_of_exchanges(true), 0) << "between nodes";
}

}  // namespace
}  // namespace moesaic
