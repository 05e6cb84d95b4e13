#include "comm/thread_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

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

/// Ranks of a run, and of a node.
struct NodeSizes {
  int ranks;
  int per_node;
};

class ThreadNodes : public testing::TestWithParam<NodeSizes> {};

TEST_P(ThreadNodes, do_what_every_transport_must) {
  const auto [ranks, per_node] = GetParam();
  run_thread_ranks(ranks, [](Communicator& comm) { conformance::everything(comm, 500); },
                   {.ranks_per_node = per_node});
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadNodes,
                         testing::Values(NodeSizes{2, 1}, NodeSizes{4, 1}, NodeSizes{4, 2},
                                         NodeSizes{5, 3}, NodeSizes{7, 2}));

TEST(ThreadCommunicator, many_random_exchanges_between_nodes) {
  run_thread_ranks(4, [](Communicator& comm) { conformance::random_exchanges(comm, 10000); },
                   {.ranks_per_node = 2});
}

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
  EXPECT_EQ(lonely_error(3,
                         [&](Communicator& comm) {
                           (void)comm.exchange_rows({row.data(), 8, 8, rows, send}, recv).wait();
                         }),
            "rank 0 of 3: exchange_rows: waiting for the rows of rank 1: gave up after 0.1 s");
}

TEST(ThreadCommunicator, deadlines_name_all_whose_rows_may_come) {
  const std::vector<std::int64_t> send(3);
  EXPECT_EQ(lonely_error(3,
                         [&](Communicator& comm) {
                           (void)comm.exchange_rows({nullptr, 8, 8, {}, send}, {}).wait();
                         }),
            "rank 0 of 3: exchange_rows: waiting for the rows of rank 1 and 2: gave up after 0.1 "
            "s");
}

TEST(ThreadCommunicator, deadlines_name_the_ranks_of_other_nodes) {
  const std::vector<std::int64_t> send(4);
  auto ranks = make_thread_communicators(4, {.timeout = 50ms, .ranks_per_node = 2});
  try {
    (void)ranks[0]->exchange_rows({nullptr, 8, 8, {}, send}, send).wait();
    FAIL() << "no error came through";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "rank 0 of 4: exchange_rows: waiting for the rows of rank 2 and the rows of rank 3 "
        "(by rank 1): gave up after 0.1 s");
  }
}

TEST(ThreadCommunicator, an_error_in_a_destructor_is_told_by_the_next_call) {
  const std::vector<std::int64_t> send(2);
  EXPECT_EQ(lonely_error(
                2,
                [&](Communicator& comm) {
                  { const PendingRows dropped = comm.exchange_rows({nullptr, 8, 8, {}, send}, {}); }
                  comm.progress();
                }),
            "rank 0 of 2: exchange_rows: waiting for the rows of rank 1: gave up after 0.1 s");
}

/// The error that ranks get of which the last is one layer ahead, with known rows or not.
std::string error_of_a_rank_ahead(int size, int per_node, bool known) {
  const auto body = [&](Communicator& comm) {
    const std::vector<std::byte> row(8);
    const auto ranks = static_cast<std::size_t>(size);
    const std::vector<std::int32_t> rows(ranks - 1);
    std::vector<std::int64_t> counts(ranks, 1);
    counts[static_cast<std::size_t>(comm.rank())] = 0;
    const RowLabel label{.step = 7, .layer = comm.rank() == size - 1 ? 4 : 3};
    (void)comm
        .exchange_rows(
            {.base = row.data(),
             .row_bytes = 8,
             .stride_bytes = 8,
             .rows = rows,
             .counts = counts,
             .label = label.at("results")},
            known ? std::span<const std::int64_t>(counts) : std::span<const std::int64_t>())
        .wait();
  };
  try {
    run_thread_ranks(size, body, {.timeout = 1h, .ranks_per_node = per_node});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    return error.what();
  }
  return "no error";
}

TEST(ThreadCommunicator, a_rank_in_another_layer_is_told_at_once) {
  for (const int per_node : {0, 1}) {
    for (const bool known : {false, true}) {
      const std::string message = error_of_a_rank_ahead(2, per_node, known);
      const std::string ahead =
          "this rank is at pass 7, layer 4, results, but rank 0 at pass 7, "
          "layer 3, results";
      const std::string behind =
          "this rank is at pass 7, layer 3, results, but rank 1 at pass 7, "
          "layer 4, results";
      EXPECT_TRUE(message == "rank 0 of 2: exchange_rows: " + behind ||
                  message == "rank 1 of 2: exchange_rows: " + ahead)
          << message;
    }
  }
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
    (void)ranks[0]->exchange_rows({row.data(), row_bytes, 8, rows, send}, recv);
  };
  EXPECT_THROW(exchange(self, one, 8), Error);
  EXPECT_THROW(exchange(one, self, 8), Error);
  EXPECT_THROW(exchange(two, one, 8), Error);
  EXPECT_THROW(exchange(three_ranks, one, 8), Error);
  EXPECT_THROW(exchange(one, one, 0), Error);
  EXPECT_THROW((void)make_thread_communicators(0), Error);
}

TEST(ThreadCommunicator, gathers_no_bytes_that_find_no_room) {
  const auto ranks = make_thread_communicators(2, {.timeout = 50ms});
  const std::vector<std::byte> own(8);
  std::vector<std::byte> of_one(8);
  try {
    ranks[0]->all_gather(own, of_one);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal) << error.what();
  }
}

/// Rank 0 sends a row, rank 1 expects others.
std::string error_of_ranks_that_disagree(int per_node, std::int64_t expected) {
  const auto body = [&](Communicator& comm) {
    const std::vector<std::byte> row(8);
    const std::vector<std::int32_t> rows = {0};
    const std::vector<std::int64_t> send = {0, comm.rank() == 0 ? 1 : 0};
    const std::vector<std::int64_t> recv = {comm.rank() == 1 ? expected : 0, 0};
    const std::span<const std::int32_t> listed(rows.data(), comm.rank() == 0 ? 1 : 0);
    (void)comm.exchange_rows({row.data(), 8, 8, listed, send}, recv).wait();
  };
  try {
    run_thread_ranks(2, body, {.timeout = 1h, .ranks_per_node = per_node});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ThreadCommunicator, ranks_that_disagree_about_rows_are_told) {
  EXPECT_EQ(error_of_ranks_that_disagree(0, 2),
            "rank 1: exchange_rows: rank 0 has 1 rows for this rank, which expects 2");
  for (int run = 0; run < 300; ++run) {  // they race: who comes second finds it
    const std::string unwanted = error_of_ranks_that_disagree(0, 0);
    ASSERT_TRUE(
        unwanted == "rank 1: exchange_rows: rank 0 has 1 rows for this rank, which expects 0" ||
        unwanted ==
            "rank 0: exchange_rows: rank 1 expects no rows of this rank, which has 1 for it")
        << unwanted;
  }
  EXPECT_EQ(error_of_ranks_that_disagree(1, 2),
            "rank 1: exchange_rows: the message of rank 0 has 1 rows for this rank, which expects "
            "2");
}

}  // namespace
}  // namespace moesaic
