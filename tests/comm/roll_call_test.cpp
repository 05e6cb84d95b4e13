// One rank waits in vain: all learn where the others are, and whose fault it is.

#include "comm/roll_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "comm/thread_communicator.h"
#include "tests/support/counter.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 2s;

using GaveUp = test::Counter;  // ranks

/// What the rank that speaks says when `body` is run by three ranks and some of them wait in vain.
std::string told(const std::function<void(Communicator&, const GaveUp&)>& body) {
  std::string message;
  std::atomic<int> speakers = 0;
  GaveUp gave_up;
  const auto tell = [&](Communicator& comm) {
    try {
      body(comm, gave_up);
    } catch (const LostRank& error) {
      gave_up.add();
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_FALSE(error.has_ended());
      if (!error.speaks()) return;
      ++speakers;
      message = error.what();
    }
  };
  run_thread_ranks(3, tell, {.timeout = kTimeout});
  EXPECT_EQ(speakers, 1);
  return message;
}

TEST(RollCall, a_silent_rank_is_named) {
  const std::string message = told([](Communicator& comm, const GaveUp& gave_up) {
    comm.place() = {.step = 12, .layer = 3, .phase = {}};
    if (comm.rank() == 0) gave_up.wait_for(2, [] {});
    comm.place() = comm.place().at("gather");
    comm.barrier();
  });
  EXPECT_EQ(test::without_times(message),
            "all wait for rank 0, silent\n"
            "  rank 0: silent\n"
            "  rank 1: step 12, layer 3, gather: barrier: waiting for rank 0, for T s\n"
            "  rank 2: step 12, layer 3, gather: barrier: waiting for rank 0, for T s");
}

TEST(RollCall, a_rank_at_work_says_where) {
  const std::string message = told([](Communicator& comm, const GaveUp& gave_up) {
    comm.place() = RowLabel{.step = 2, .layer = comm.rank(), .phase = {}}.at("attention");
    if (comm.rank() == 2) gave_up.wait_for(2, [&] { comm.progress(); });
    comm.barrier();
  });
  EXPECT_TRUE(message.starts_with("all wait for rank 2, at work\n")) << message;
  EXPECT_NE(message.find("\n  rank 2: step 2, layer 2, attention: at work"), std::string::npos)
      << message;
}

TEST(RollCall, ranks_that_have_lost_each_other_are_told_apart) {
  const std::string message = told([](Communicator& comm, const GaveUp&) {
    comm.place() = {.step = 1 + comm.rank() / 2, .layer = -1, .phase = {}};
    const auto pair = comm.split(comm.rank() == 2 ? 1 : 0, 0);
    if (comm.rank() == 0) comm.barrier();
    if (comm.rank() == 1) pair->barrier();
    comm.barrier();
  });
  EXPECT_TRUE(message.starts_with("all ranks wait for each other, at different places\n"))
      << message;
  EXPECT_NE(message.find("rank 1: step 1, starting: in a group of ranks, as rank 1 of 2: barrier"),
            std::string::npos)
      << message;
}

/// Rank 0 of a job whose other ranks have told this.
class ToldRollCall final : public RollCall {
 public:
  explicit ToldRollCall(std::vector<RankReport> told)
      : RollCall(0, std::vector<std::string>(told.size())), told_(std::move(told)) {}

 private:
  void tell(const RankReport&) override {}
  void listen(std::span<RankReport> reports) override {
    for (std::size_t peer = 1; peer < reports.size(); ++peer) reports[peer] = told_[peer];
  }

  std::vector<RankReport> told_;
};

TEST(RollCall, a_rank_that_waited_in_vain_and_left_is_told_with_its_place) {
  std::vector<RankReport> told(3);
  for (RankReport& report : told) report.state = RankReport::State::left;
  const RowLabel place = RowLabel{.step = 3, .layer = 2, .phase = {}}.at("rows");
  told[1].place = place;
  told[1].waited_seconds = 5;
  std::string_view("barrier: waiting for rank 2").copy(told[1].waiting.data(), 64);
  try {
    ToldRollCall(told).call(place, "rank 0 of 3: barrier: waiting for rank 2",
                            std::chrono::steady_clock::now());
  } catch (const LostRank& error) {
    EXPECT_EQ(
        test::without_times(error.what()),
        "all wait for rank 2, which left the job\n"
        "  rank 0: step 3, layer 2, rows: barrier: waiting for rank 2, for T s\n"
        "  rank 1: step 3, layer 2, rows: barrier: waiting for rank 2, for T s, and has left the "
        "job\n"
        "  rank 2: has left the job");
  }
}

}  // namespace
}  // namespace moesaic
