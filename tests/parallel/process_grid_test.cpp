#include "src/parallel/process_grid.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/thread_communicator.h"

namespace moesaic {
namespace {

TEST(ProcessGrid, replicas_are_runs_of_neighbouring_ranks) {
  run_thread_ranks(6, [](Communicator& world) {
    const ProcessGrid grid(world, 2);
    EXPECT_EQ(grid.experts().size(), 3);
    EXPECT_EQ(grid.experts().rank(), world.rank() % 3);
    std::vector<std::int64_t> members = {world.rank()};
    grid.experts().sum(members);
    EXPECT_EQ(members[0], world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    EXPECT_EQ(grid.node().size(), 6);
  });
}

TEST(ProcessGrid, refuses_replicas_that_do_not_divide) {
  run_thread_ranks(3, [](Communicator& world) { EXPECT_THROW(ProcessGrid(world, 2), Error); });
  run_thread_ranks(2, [](Communicator& world) { EXPECT_THROW(ProcessGrid(world, 0), Error); });
}

}  // namespace
}  // namespace moesaic
