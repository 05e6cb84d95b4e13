#include "comm/thread_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "tests/comm/communicator_conformance.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, do_what_every_transport_must) {
  run_thread_ranks(GetParam(), [](Communicator& comm) { conformance::everything(comm, 1000); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, testing::Values(1, 2, 3, 4, 8));

TEST(ThreadCommunicator, nodes_can_be_pretended) {
  const CommOptions options{.ranks_per_node = 2};
  run_thread_ranks(
      5,
      [](Communicator& comm) {
        const auto node = comm.split_node();
        EXPECT_EQ(node->size(), comm.rank() == 4 ? 1 : 2);
        EXPECT_EQ(node->rank(), comm.rank() % 2);
      },
      options);
}

TEST(ThreadCommunicator, the_first_error_ends_all_ranks) {
  const CommOptions options{.timeout = 1h};  // nobody is to wait it out
  const auto body = [](Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2, 0);
    if (comm.rank() == 2) throw std::runtime_error("rank 2 cannot go on");
    for (int i = 0; i < 100; ++i) conformance::random_exchanges(*half, 100);
    comm.barrier();
  };
  try {
    run_thread_ranks(4, body, options);
    FAIL() << "no error came through";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 2 cannot go on");
  }
}

TEST(ThreadCommunicator, the_others_learn_who_failed) {
  std::string message;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 1) fail(ErrorKind::file, "no such shard");
    try {
      comm.barrier();
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::peer);
    }
  };
  EXPECT_THROW(run_thread_ranks(2, body), Error);
  EXPECT_EQ(message, "rank 0 of 2: barrier: waiting for rank 1: rank 1 has failed");
}

/// The message of the Error{peer} that rank 0 gets from `call` while the others stay away.
template <typename Call>
std::string lonely_error(int size, Call&& call) {
  auto ranks = make_thread_communicators(size, {.timeout = 50ms});
  try {
    call(*ranks[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    return error.what();
  }
  return "no error";
}

TEST(ThreadCommunicator, deadlines_name_rank_call_and_peers) {
  EXPECT_EQ(lonely_error(3, [](Communicator& comm) { comm.barrier(); }),
            "rank 0 of 3: barrier: waiting for rank 1 and 2: gave up after 0.1 s");
  const std::vector<std::byte> row(8);
  const std::vector<std::int32_t> rows = {0};
  const std::vector<std::int64_t> send = {0, 0, 1};
  const std::vector<std::int64_t> recv = {0, 2, 0};
  EXPECT_EQ(
      lonely_error(3,
                   [&](Communicator& comm) {
                     (void)comm.exchange_rows({row.data(), 8, 8, rows, send}, recv, {}).wait();
                   }),
      "rank 0 of 3: exchange_rows: waiting for rank 2 to make room and the rows of rank 1: "
      "gave up after 0.1 s");
}

TEST(ThreadCommunicator, deadlines_name_the_counts_that_rows_wait_for) {
  const std::vector<std::int64_t> send(3);
  std::vector<std::int64_t> recv(3);
  EXPECT_EQ(
      lonely_error(
          3,
          [&](Communicator& comm) {
            PendingCounts counts = comm.start_counts(send, recv);
            (void)comm.exchange_rows({nullptr, 8, 8, {}, send}, recv, std::move(counts)).wait();
          }),
      "rank 0 of 3: exchange_rows: waiting for the counts of rank 1 and 2: gave up after 0.1 "
      "s");
}

TEST(ThreadCommunicator, an_error_in_a_destructor_is_told_by_the_next_call) {
  const std::vector<std::int64_t> send(2);
  std::vector<std::int64_t> recv(2);
  EXPECT_EQ(lonely_error(2,
                         [&](Communicator& comm) {
                           { const PendingCounts dropped = comm.start_counts(send, recv); }
                           comm.progress();
                         }),
            "rank 0 of 2: start_counts: waiting for the counts of rank 1: gave up after 0.1 s");
}

TEST(ThreadCommunicator, refuses_broken_promises) {
  const auto ranks = make_thread_communicators(2);
  const std::vector<std::byte> row(8);
  const std::vector<std::int32_t> rows = {0};
  const std::vector<std::int64_t> one = {0, 1};
  const std::vector<std::int64_t> self = {1, 0};
  const std::vector<std::int64_t> two = {0, 2};
  const std::vector<std::int64_t> three_ranks = {0, 1, 0};
  const auto exchange = [&](const auto& send, const auto& recv, std::int64_t row_bytes) {
    (void)ranks[0]->exchange_rows({row.data(), row_bytes, 8, rows, send}, recv, {});
  };
  EXPECT_THROW(exchange(self, one, 8), Error);
  EXPECT_THROW(exchange(one, self, 8), Error);
  EXPECT_THROW(exchange(two, one, 8), Error);
  EXPECT_THROW(exchange(three_ranks, one, 8), Error);
  EXPECT_THROW(exchange(one, one, 0), Error);
  EXPECT_THROW((void)make_thread_communicators(0), Error);
}

TEST(ThreadCommunicator, ranks_that_disagree_about_rows_are_told) {
  const auto body = [](Communicator& comm) {
    const std::vector<std::byte> row(8);
    const std::vector<std::int32_t> rows = {0};
    const std::vector<std::int64_t> send = {0, comm.rank() == 0 ? 1 : 0};
    const std::vector<std::int64_t> recv = {comm.rank() == 1 ? 2 : 0, 0};
    const std::span<const std::int32_t> listed(rows.data(), comm.rank() == 0 ? 1 : 0);
    (void)comm.exchange_rows({row.data(), 8, 8, listed, send}, recv, {}).wait();
  };
  try {
    run_thread_ranks(2, body);
    FAIL() << "no error came through";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0: exchange_rows: 8 bytes for rank 1, which expects 16");
  }
}

}  // namespace
}  // namespace moesaic
