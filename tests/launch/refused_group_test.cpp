// A job that fails before its ranks have said a word to each other: it tells why, and ends.

#include <gtest/gtest.h>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

TEST(RefusedGroup, EndsTheJobWithALine) {
  for (const int ranks : {1, 2}) {
    const ProgramResult result =
        run_ranks(ranks, generate_with({}), {{"LD_PRELOAD", MOESAIC_REFUSED_GROUP}});
    EXPECT_EQ(result.exit_code, 1) << result.text();
    EXPECT_NE(result.err.find("error: "), std::string::npos) << result.text();
    EXPECT_NE(result.err.find(": MPI_Comm_dup: "), std::string::npos) << result.text();
    EXPECT_EQ(result.err.find("terminate called"), std::string::npos) << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
