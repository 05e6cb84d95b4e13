// After the first steps an exchange allocates nothing.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/comm/transport_pair.h"

namespace {

std::atomic<std::int64_t> num_allocations = 0;

}  // namespace

// Of this test program. (Inlined, GCC takes new and free for a mismatch.)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++num_allocations;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace moesaic {
namespace {

/// Whose own allocations are not counted: letters between threads have memory of their own.
class UncountedMessages final : public Messages {
 public:
  explicit UncountedMessages(std::unique_ptr<Messages> base) : base_(std::move(base)) {}
  void clear() override { base_->clear(); }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    const std::int64_t before = num_allocations;
    base_->send(peer, tag, data);
    num_allocations = before;
  }
  std::size_t receive(int peer, int tag, std::span<std::byte> room) override {
    return base_->receive(peer, tag, room);
  }
  bool progress() override { return base_->progress(); }
  [[nodiscard]] std::int64_t received_bytes(std::size_t number) const override {
    return base_->received_bytes(number);
  }
  [[nodiscard]] RankList unsent() const override { return base_->unsent(); }

 private:
  std::unique_ptr<Messages> base_;
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
    if (exchange == 30) before = num_allocations;
    ranks.run({.base = matrix.data(),
               .row_bytes = kBytesOfEach,
               .stride_bytes = kBytesOfEach,
               .rows = rows,
               .counts = to_one,
               .tag_bytes = 8});
  }
  return num_allocations - before;
}

TEST(Allocations, exchanges_need_none_after_the_first_ones) {
  const std::int64_t before = num_allocations;
  ::operator delete(::operator new(1));
  if (num_allocations == before) GTEST_SKIP() << "allocations cannot be counted in this build";
  EXPECT_EQ(allocations_of_exchanges(false), 0) << "inside a node";
  EXPECT_EQ(allocations_of_exchanges(true), 0) << "between nodes";
}

}  // namespace
}  // namespace moesaic
