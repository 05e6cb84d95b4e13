// What verbs run in, on ranks that are processes.

#include "launch/job/runtime.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/options/options.h"
#include "tests/comm/computing_sender.h"
#include "tests/comm/mpi_test_main.h"

namespace moesaic {
namespace {

TEST(Runtime, its_threads_move_rows_while_they_compute) {
  const std::vector<std::string> arguments = {"doctor", "--transport", "mpi", "--timeout",
                                              "60",     "--threads",   "2"};
  const Command command = parse_command(arguments, {});
  const Runtime runtime(mpi_test_session(), command);
  Communicator& world = runtime.world();
  rows_leave_while_their_senders_compute(world, *world.allocate_shared(8), *runtime.compute().pool);
  const auto more = runtime.make_pool(2);  // as threads that a benchmark adds
  rows_leave_while_their_senders_compute(world, *world.allocate_shared(8), *more);
}

}  // namespace
}  // namespace moesaic
