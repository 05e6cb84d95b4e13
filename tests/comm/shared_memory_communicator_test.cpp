#include "comm/shared_memory_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <vector>

#include "comm/checked_communicator.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/mpi_test_main.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

TEST(SharedMemoryCommunicator, does_what_every_transport_must) {
  const auto comm = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  EXPECT_EQ(comm->transport(), "shared memory");
  conformance::everything(*comm, 2000);
}

class PretendedNodes : public testing::TestWithParam<int> {};

TEST_P(PretendedNodes, does_what_every_transport_must) {
  const int per_node = GetParam();
  const auto comm = make_shared_memory_communicator(mpi_test_session(),
                                                    {.timeout = 60s, .ranks_per_node = per_node});
  const int first_of_node = comm->rank() / per_node * per_node;
  const int node_size = std::min(per_node, comm->size() - first_of_node);
  EXPECT_EQ(comm->split_node()->size(), node_size);
  if (node_size == comm->size()) {
    EXPECT_EQ(comm->transport(), "shared memory");
  } else {
    EXPECT_EQ(comm->transport(), node_size > 1 ? "shared memory and mpi" : "mpi");
  }
  conformance::everything(*comm, 1000);
}

TEST(SharedMemoryCommunicator, deadlines_name_the_missing_ranks) {
  const auto world = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  const auto comm = make_shared_memory_communicator(mpi_test_session(), {.timeout = 50ms});
  if (comm->size() != 3) return;
  if (comm->rank() == 0) {
    try {
      comm->barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      const std::string_view message = error.what();
      EXPECT_NE(message.find("barrier: waiting for rank 1 and 2, for "), std::string::npos)
          << message;
    }
  }
  world->barrier();
}

TEST(SharedMemoryCommunicator, rows_can_be_read_when_their_sender_has_gone) {
  const auto world = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  const int late = world->size() - 1;
  if (late == 0) return;
  const std::vector<std::byte> row(5000, std::byte{3});
  const std::vector<std::int32_t> rows(world->rank() == late ? 0 : 1);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world->size()));
  std::vector<std::int64_t> expected = counts;
  if (world->rank() == late) {
    for (int peer = 0; peer < late; ++peer) expected[static_cast<std::size_t>(peer)] = 1;
  } else {
    counts[static_cast<std::size_t>(late)] = 1;
  }
  {
    const auto ranks = world->split(0, world->rank());
    if (world->rank() == late) std::this_thread::sleep_for(200ms);
    PendingRows pending = ranks->exchange_rows({.base = row.data(),
                                                .row_bytes = 5000,
                                                .stride_bytes = 5000,
                                                .rows = rows,
                                                .counts = counts},
                                               expected);
    for (const std::byte* got : pending.wait().rows) {
      EXPECT_EQ(std::count(got, got + 5000, std::byte{3}), 5000);
    }
  }
  world->barrier();
}

/// As long as it lives, this process can make no shared segment of more bytes.
class SmallSegments {
 public:
  explicit SmallSegments(rlim_t most) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{most, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  SmallSegments(const SmallSegments&) = delete;
  SmallSegments& operator=(const SmallSegments&) = delete;
  ~SmallSegments() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit limit_{};
  void (*handler_)(int);
};

TEST(SharedMemoryCommunicator, goes_over_mpi_where_no_memory_can_be_shared) {
  const SmallSegments none(0);
  if (mpi_test_session().size() == 1) return;
  const auto comm = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  EXPECT_EQ(comm->transport(), "mpi");
  const auto with_mpi = make_mpi_communicator(mpi_test_session(), {.timeout = 60s});
  for (Communicator* ranks : {comm.get(), with_mpi.get()}) {
    const auto node = ranks->split_node();
    EXPECT_EQ(node->size(), 1) << "weights are shared with nobody";
    conformance::shared_memory(*node);
  }
}

TEST(SharedMemoryCommunicator, refuses_to_go_over_mpi_where_it_must_not) {
  if (mpi_test_session().size() == 1) return;
  for (const rlim_t bytes : {0, 1, 4096}) {  // of less than a board
    const SmallSegments small(bytes);
    try {
      (void)make_shared_memory_communicator(mpi_test_session(),
                                            {.timeout = 60s, .require_shared_memory = true});
      ADD_FAILURE() << "no error with segments of " << bytes << " B";
    } catch (const SharedMemoryRefused& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      EXPECT_THAT(error.what(),
                  AllOf(StartsWith("ranks of one node cannot map each other's memory: shared "
                                   "memory: no room for "),
                        EndsWith(": File too large")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RanksPerNode, PretendedNodes, testing::Values(1, 2, 3));

TEST(SharedMemoryCommunicator, can_be_checked) {
  const auto comm = make_checked_communicator(
      make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s}));
  conformance::everything(*comm, 200);
}

}  // namespace
}  // namespace moesaic
