// Traces for SimGrid.

#include "launch/study/smpi_trace.h"

#include <gtest/gtest.h>

#include <string>

namespace moesaic {
namespace {

/// Three ranks, two of them on the first node; bytes say from whom they are to where.
SmpiPass three_ranks() {
  return {
      .ranks = {.ranks = 3, .ranks_per_node = 2},
      .messages = {.layers = {{.nodes = 2,
                               .bytes = {{11, 12}, {21, 22}, {31, 32}, {41, 42}, {51, 52}, {0, 0}},
                               .near_messages = 3}}},
      .layer_seconds = 5e-6};
}

TEST(SmpiTrace, MessagesTakeTheRankThatSendsThem) {
  const SmpiRates rates{.near_message = 1e-6, .far_message = 7e-6};
  // Near: 3 x 1 us; far: one there, one back, 7 us each. Half of it stands before each exchange.
  EXPECT_EQ(smpi_trace(three_ranks(), rates, 0),
            "0 init\n"
            "0 compute 13500\n"
            "0 irecv 1 0 31\n0 irecv 2 0 51\n0 isend 1 0 11\n0 isend 2 0 21\n0 waitall\n"
            "0 compute 8500\n"
            "0 irecv 1 0 32\n0 irecv 2 0 52\n0 isend 1 0 12\n0 isend 2 0 22\n0 waitall\n"
            "0 finalize\n");
}

TEST(SmpiTrace, EachNodeHasOneRankThatTakesAnothersRows) {
  // Rank 1 sends to the other node too, whose one rank takes what both send.
  EXPECT_EQ(smpi_trace(three_ranks(), {}, 2),
            "2 init\n"
            "2 compute 5000\n"
            "2 irecv 0 0 21\n2 irecv 1 0 41\n2 isend 0 0 51\n2 waitall\n"
            "2 irecv 0 0 22\n2 irecv 1 0 42\n2 isend 0 0 52\n2 waitall\n"
            "2 finalize\n");
}

TEST(SmpiTrace, PlatformsHaveTheLinksOfTheRates) {
  const std::string platform =
      smpi_platform(three_ranks().ranks, {.near_byte = 1e-10, .far_byte = 8e-9});
  EXPECT_NE(platform.find("radical=\"0-1\""), std::string::npos) << platform;
  EXPECT_NE(platform.find(" bw=\"1.25e+08Bps\""), std::string::npos) << platform;
  EXPECT_NE(platform.find("loopback_bw=\"1e+10Bps\""), std::string::npos) << platform;
  EXPECT_NE(platform.find("core=\"2\""), std::string::npos) << platform;
  EXPECT_EQ(smpi_hosts(three_ranks().ranks), "node-0\nnode-0\nnode-1\n");
}

TEST(SmpiTrace, RanksThatShareNoMemoryAreANodeEach) {
  SmpiPass pass{
      .ranks = {.ranks = 2, .ranks_per_node = 2, .by_messages = true},
      .messages = {.layers = {{.nodes = 2, .bytes = {{11, 12}, {21, 22}, {31, 32}, {41, 42}}}}},
      .layer_seconds = 5e-6};
  EXPECT_EQ(smpi_trace(pass, {.far_message = 7e-6}, 0),
            "0 init\n"
            "0 compute 12000\n"
            "0 irecv 1 0 31\n0 isend 1 0 21\n0 waitall\n"
            "0 compute 7000\n"
            "0 irecv 1 0 32\n0 isend 1 0 22\n0 waitall\n"
            "0 finalize\n");
  EXPECT_EQ(smpi_hosts(pass.ranks), "node-0\nnode-1\n");
  const std::string platform = smpi_platform(pass.ranks, {});
  EXPECT_NE(platform.find("radical=\"0-1\""), std::string::npos) << platform;
  EXPECT_NE(platform.find("core=\"1\""), std::string::npos) << platform;
}

}  // namespace
}  // namespace moesaic
