// A system that refuses memory while products are at work: the program says so and ends.

#include <gtest/gtest.h>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

const Arguments kProducts = {"bench",     "kernels", "--shapes",    "256x512", "--formats",
                             "nvfp4",     "--rows",  "64",          "-t",      "3",
                             "--seconds", "0.001",   "--footprint", "4M"};

TEST(RefusedMemory, InAJobOfAProductEndsTheProgram) {
  ASSERT_EQ(run_moesaic(kProducts).exit_code, 0) << "with all memory that it asks for";
  for (int round = 0; round < 5; ++round) {
    const ProgramResult result = run_moesaic(kProducts, {{"LD_PRELOAD", MOESAIC_REFUSED_MEMORY}});
    EXPECT_EQ(result.exit_code, 4) << result.text();
    EXPECT_NE(result.err.find("cannot allocate"), std::string::npos) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.text();
  }
}

TEST(RefusedMemory, OfOneRankEndsAll) {
  const Arguments layer = {"bench",     "layer",    "--layer",     "4,512,256,2", "--formats",
                           "nvfp4",     "--tokens", "128",         "-t",          "1",
                           "--seconds", "0.001",    "--footprint", "4M"};
  const Arguments alone = joined({MOESAIC_MPIRUN, "-n", "1", MOESAIC_PROGRAM}, layer);
  const Arguments refused =
      joined({":", "-n", "1", "env", "LD_PRELOAD=" MOESAIC_REFUSED_MEMORY, MOESAIC_PROGRAM}, layer);
  expect_failure(run_program(joined(alone, refused)), 4, {"[rank 1/2", "cannot allocate"});
}

}  // namespace
}  // namespace moesaic::test
