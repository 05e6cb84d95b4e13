#include "comm/mpi_communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "comm/checked_communicator.h"
#include "comm/shared_memory_communicator.h"
#include "comm/wait.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/mpi_test_main.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

const CommOptions kOptions{.timeout = 60s};

TEST(MpiCommunicator, does_what_every_transport_must) {
  const auto comm = make_mpi_communicator(mpi_test_session(), kOptions);
  EXPECT_EQ(comm->rank(), mpi_test_session().rank());
  conformance::everything(*comm, 1000);
}

TEST(MpiCommunicator, writing_to_what_is_gone_is_an_error) {
  if (mpi_test_session().size() == 1) GTEST_SKIP() << "SIGPIPE ends a rank alone, as head wants it";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
}

TEST(MpiCommunicator, nodes_can_be_pretended) {
  const auto comm =
      make_mpi_communicator(mpi_test_session(), {.timeout = 60s, .ranks_per_node = 2});
  const auto node = comm->split_node();
  EXPECT_EQ(node->rank(), comm->rank() % 2);
  EXPECT_EQ(node->size(), std::min(2, comm->size() - comm->rank() / 2 * 2));
  conformance::shared_memory(*node);
}

/// The message of the Error{peer} that rank 0 gets from `call` while the others stay away.
template <typename Call>
void expect_lonely_error(Call&& call, const std::string& expected) {
  const auto world = make_mpi_communicator(mpi_test_session(), kOptions);
  if (world->size() == 1) return;
  const auto comm = make_mpi_communicator(mpi_test_session(), {.timeout = 50ms});
  if (comm->rank() == 0) {
    try {
      call(*comm);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_NE(std::string_view(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  world->barrier();
}

TEST(MpiCommunicator, deadlines_name_rank_and_call) {
  expect_lonely_error([](Communicator& comm) { comm.barrier(); },
                      "starting: barrier: waiting for all ranks to join, for ");
}

TEST(MpiCommunicator, deadlines_of_rows_name_the_peer) {
  const int ranks = mpi_test_session().size();
  const std::vector<std::int64_t> none(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> recv = none;
  recv.back() = ranks > 1 ? 3 : 0;
  RankList all;
  for (int rank = 1; rank < ranks; ++rank) all.add(rank);
  const std::string others = all.text();
  expect_lonely_error(
      [&](Communicator& comm) {
        (void)comm.exchange_rows({nullptr, 8, 8, {}, none}, recv).wait();
      },
      "starting: exchange_rows: waiting for the rows of rank " + others + ", for ");
}

TEST(MpiCommunicator, who_has_joined_a_collective_call_is_not_awaited) {
  const auto world = make_mpi_communicator(mpi_test_session(), kOptions);
  if (world->size() < 3) GTEST_SKIP() << "two ranks wait for each other";
  std::string message;
  try {
    const auto comm = make_mpi_communicator(mpi_test_session(), {.timeout = 4s});
    comm->place() = RowLabel{.step = 1, .layer = comm->rank(), .phase = {}}.at("sums");
    const auto pair = comm->split(comm->rank() == 1 || comm->rank() == 2 ? 0 : 1, -comm->rank());
    if (comm->rank() == 1) pair->barrier();
    comm->barrier();
    ADD_FAILURE() << "no error";
  } catch (const LostRank& error) {
    message = error.what();
  }
  EXPECT_EQ(message.substr(0, message.find('\n')).find("all waits lead to rank 1 ("), 0) << message;
  EXPECT_NE(message.find("), which waits at pass 1, layer 1, sums for rank 2 ("), std::string::npos)
      << message;
  EXPECT_NE(message.find("), which waits at pass 1, layer 2, sums for rank 1 ("), std::string::npos)
      << message;
  world->barrier();
}

/// Many calls in one group are none in another, though that has the same ranks.
TEST(MpiCommunicator, groups_of_the_same_ranks_are_told_apart) {
  const auto world = make_mpi_communicator(mpi_test_session(), kOptions);
  if (world->size() < 2) GTEST_SKIP() << "nobody to wait for";
  std::string message;
  try {
    const auto comm = make_mpi_communicator(mpi_test_session(), {.timeout = 4s});
    comm->place() = RowLabel{.step = 1, .layer = comm->rank(), .phase = {}}.at("sums");
    const auto same = comm->split(0, comm->rank());
    for (int i = 0; i < 5; ++i) comm->barrier();
    (comm->rank() == 0 ? *same : *comm).barrier();
    ADD_FAILURE() << "no error";
  } catch (const LostRank& error) {
    message = error.what();
  }
  const std::string verdict = message.substr(0, message.find('\n'));
  EXPECT_NE(verdict.find(world->size() == 2 ? "all ranks wait for each other" : "for rank 1 ("),
            std::string::npos)
      << message;
  world->barrier();
}

TEST(MpiCommunicator, rows_can_be_checked) {
  for (const int per_node : {1, 2}) {
    const auto comm = make_shared_memory_communicator(
        mpi_test_session(), {.timeout = 60s, .ranks_per_node = per_node, .check_rows = 2});
    conformance::exchanges_under_way(*comm);
    conformance::random_exchanges(*comm, 300);
  }
}

TEST(MpiCommunicator, can_be_checked) {
  const auto comm =
      make_checked_communicator(make_mpi_communicator(mpi_test_session(), {.timeout = 60s}));
  conformance::everything(*comm, 200);
}

}  // namespace
}  // namespace moesaic
