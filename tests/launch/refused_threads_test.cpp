// A system that has no more threads: the job says so and ends, though that would take one more.

#include <gtest/gtest.h>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

TEST(RefusedThreads, EndTheJobWithItsCode) {
  for (const int ranks : {1, 2}) {
    const ProgramResult result =
        run_ranks(ranks, generate_with({"-t", "2"}), {{"LD_PRELOAD", MOESAIC_REFUSED_THREADS}});
    EXPECT_EQ(result.exit_code, 4) << result.text();
    EXPECT_NE(result.err.find("error: the system refuses thread 2 of 2"), std::string::npos)
        << result.text();
    EXPECT_EQ(result.err.find("terminate called"), std::string::npos) << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
