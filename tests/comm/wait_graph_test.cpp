// Whom a chain of waits leads to.

#include "comm/wait_graph.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

using Places = std::vector<std::vector<int>>;

TEST(WaitGraph, a_chain_leads_to_its_end) {
  EXPECT_EQ(where_waits_lead({{1}, {2}, {3}, {}}), Places({{3}}));
  EXPECT_EQ(where_waits_lead({{}, {0}, {1}, {0, 1, 2}}), Places({{0}}));
}

TEST(WaitGraph, a_chain_into_a_circle_leads_to_the_ranks_of_that) {
  EXPECT_EQ(where_waits_lead({{1}, {2}, {1}, {0}}), Places({{1, 2}}));
  EXPECT_EQ(where_waits_lead({{3}, {0}, {1}, {1, 2}}), Places({{0, 1, 3}})) << "2 can be left out";
}

TEST(WaitGraph, the_rank_on_all_circles_is_the_one) {
  EXPECT_EQ(where_waits_lead({{2}, {2}, {0, 1}}), Places({{2}}));
  EXPECT_EQ(where_waits_lead({{1, 2, 3}, {2}, {0, 3}, {2}, {1}}), Places({{2}}));
}

TEST(WaitGraph, circles_without_a_rank_in_common_are_all_named) {
  EXPECT_EQ(where_waits_lead({{1, 2}, {0, 2}, {0, 1}}), Places({{0, 1, 2}}));
  EXPECT_EQ(where_waits_lead({{1}, {0, 2}, {1, 3}, {2}}), Places({{0, 1, 2, 3}}));
}

TEST(WaitGraph, several_places_are_told_apart) {
  EXPECT_EQ(where_waits_lead({{1}, {0}, {3}, {2}, {0, 2}}), Places({{0, 1}, {2, 3}}));
  EXPECT_EQ(where_waits_lead({{3}, {}, {1, 0}, {}}), Places({{1}, {3}}));
  EXPECT_EQ(where_waits_lead({{}, {}, {}}), Places({{0}, {1}, {2}}));
}

TEST(WaitGraph, many_ranks_are_no_trouble) {
  constexpr int kRanks = 1024;
  WaitGraph awaits(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int other = 0; other < kRanks; ++other) {
      if (other != rank && (rank == 700 || other == 700)) {
        awaits[static_cast<std::size_t>(rank)].push_back(other);
      }
    }
  }
  EXPECT_EQ(where_waits_lead(awaits), Places({{700}}));
}

}  // namespace
}  // namespace moesaic
