#include "base/counted.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace moesaic {
namespace {

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(std::int64_t{2}, "NUMA node"), "2 NUMA nodes");
}

}  // namespace
}  // namespace moesaic
