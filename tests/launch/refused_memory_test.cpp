// A system that refuses memory while products are at work: the program says so and ends.

#include <gtest/gtest.h>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

TEST(RefusedMemory, InAJobOfAProductEndsTheProgram) {
  const Arguments arguments = {"bench",     "kernels", "--shapes",    "256x512", "--formats",
                               "nvfp4",     "--rows",  "64",          "-t",      "3",
                               "--seconds", "0.001",   "--footprint", "4M"};
  ASSERT_EQ(run_moesaic(arguments).exit_code, 0) << "with all memory that it asks for";
  for (int round = 0; round < 5; ++round) {
    const ProgramResult result = run_moesaic(arguments, {{"LD_PRELOAD", MOESAIC_REFUSED_MEMORY}});
    EXPECT_EQ(result.exit_code, 4) << result.text();
    EXPECT_NE(result.err.find("cannot allocate"), std::string::npos) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
