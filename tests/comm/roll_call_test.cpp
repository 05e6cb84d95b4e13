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
std::string told(const std::function<void(Communicator&, const GaveUp&)>& body,
                 const CommOptions& options = {.timeout = kTimeout}) {
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
  run_thread_ranks(3, tell, options);
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
            "  rank 1: pass 12, layer 3, gather: barrier: waiting for rank 0, for T s\n"
            "  rank 2: pass 12, layer 3, gather: barrier: waiting for rank 0, for T s");
}

TEST(RollCall, a_rank_at_work_says_where) {
  const std::string message = told([](Communicator& comm, const GaveUp& gave_up) {
    comm.place() = RowLabel{.step = 2, .layer = comm.rank(), .phase = {}}.at("attention");
    if (comm.rank() == 2) gave_up.wait_for(2, [&] { comm.progress(); });
    comm.barrier();
  });
  EXPECT_TRUE(message.starts_with("all wait for rank 2, at work\n")) << message;
  EXPECT_NE(message.find("\n  rank 2: pass 2, layer 2, attention: at work"), std::string::npos)
      << message;
}

TEST(RollCall, ranks_of_groups_that_have_lost_each_other_are_named_as_the_job_does) {
  const std::string message = told([](Communicator& comm, const GaveUp&) {
    comm.place() = {.step = 1 + comm.rank() / 2, .layer = -1, .phase = {}};
    const auto pair = comm.split(comm.rank() == 0 ? 1 : 0, -comm.rank());
    if (comm.rank() == 1) pair->barrier();  // as the second of two
    comm.barrier();
  });
  EXPECT_EQ(test::without_times(message),
            "all waits lead to rank 1, which waits at pass 1, starting for rank 2, and rank 2, "
            "which waits at pass 2, starting for rank 1\n"
            "  rank 0: pass 1, starting: barrier: waiting for rank 1, for T s\n"
            "  rank 1: pass 1, starting: in a group of ranks, as rank 1 of 2: barrier: waiting for "
            "rank 0 (of the job: rank 2), for T s\n"
            "  rank 2: pass 2, starting: barrier: waiting for rank 1, for T s");
}

TEST(RollCall, who_awaits_rows_names_the_rank_that_is_elsewhere) {
  for (const int per_node : {0, 1, 2}) {
    const auto body = [](Communicator& comm, const GaveUp&) {
      comm.place() = RowLabel{.step = 12, .layer = 3 - comm.rank() / 2, .phase = {}}.at("rows");
      if (comm.rank() == 2) comm.barrier();
      const std::vector<std::int64_t> none(3);
      (void)comm.exchange_rows({nullptr, 8, 8, {}, none}, {}).wait();
    };
    const std::string message = told(body, {.timeout = kTimeout, .ranks_per_node = per_node});
    EXPECT_TRUE(message.starts_with(
        "all waits lead to rank 2, which waits at pass 12, layer 2, rows for rank 0, rank 1\n"))
        << message;
  }
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

/// A report of a rank that waits.
RankReport waits_for(std::initializer_list<int> ranks, int layer = 0, Meeting meeting = {}) {
  RankReport report{.state = RankReport::State::waits};
  report.place = RowLabel{.step = 1, .layer = layer, .phase = {}}.at("rows");
  report.waiting[0] = '?';
  for (const int rank : ranks) report.awaited.add(rank);
  report.meeting = meeting;
  return report;
}

/// In which other state a rank is.
RankReport that_is(RankReport::State state) {
  return {.state = state};
}

/// What the ranks conclude from these reports.
std::string verdict(std::vector<RankReport> reports) {
  Awaited waiting{.text = "rank 0 of 1: ?", .ranks = {}, .meeting = reports[0].meeting};
  for (int rank = 0; rank < RankBits::kMost; ++rank) {
    if (reports[0].awaited.has(rank)) waiting.ranks.push_back(rank);
  }
  const RowLabel place = reports[0].place;
  std::string text;
  try {
    ToldRollCall(std::move(reports)).call(place, waiting, std::chrono::steady_clock::now());
  } catch (const LostRank& error) {
    text = error.what();
  }
  return text.substr(0, text.find('\n'));
}

using State = RankReport::State;

TEST(RollCall, a_chain_of_waits_names_its_end) {
  EXPECT_EQ(verdict({waits_for({1}), waits_for({2}), waits_for({}, 5)}),
            "all waits lead to rank 2, which waits at pass 1, layer 5, rows");
  EXPECT_EQ(
      verdict({waits_for({1}), waits_for({2}, 4), waits_for({1}, 5)}),
      "all waits lead to rank 1, which waits at pass 1, layer 4, rows for rank 2, and rank 2, "
      "which waits at pass 1, layer 5, rows for rank 1");
  EXPECT_EQ(verdict({waits_for({3}), waits_for({3}), waits_for({3}), waits_for({0, 1, 2}, 7)}),
            "all waits lead to rank 3, which waits at pass 1, layer 7, rows for rank 0, rank 1, "
            "rank 2");
}

TEST(RollCall, several_ends_and_long_circles_are_told_shortly) {
  EXPECT_EQ(verdict({waits_for({1, 2}), waits_for({}, 4), waits_for({}, 5)}),
            "all waits lead to rank 1, which waits at pass 1, layer 4, rows; or to rank 2, which "
            "waits at pass 1, layer 5, rows");
  EXPECT_EQ(
      verdict({waits_for({1}), waits_for({2}), waits_for({3}), waits_for({4}), waits_for({1})}),
      "all waits lead to rank 1, rank 2, rank 3, rank 4, which wait for each other");
  EXPECT_EQ(verdict({waits_for({4}), waits_for({4}), waits_for({4}), waits_for({4}),
                     waits_for({0, 1, 2, 3})}),
            "all waits lead to rank 4, which waits at pass 1, layer 0, rows for 4 ranks");
}

TEST(RollCall, waits_that_tell_no_rank_from_the_others_are_told_as_such) {
  EXPECT_EQ(verdict({waits_for({1}), waits_for({0})}), "all ranks wait for each other");
  EXPECT_EQ(verdict({waits_for({1}), waits_for({0}, 1)}),
            "all ranks wait for each other, at different places");
  EXPECT_EQ(verdict({waits_for({}), waits_for({}), waits_for({}, 1)}),
            "all ranks wait for each other, at different places");
}

TEST(RollCall, a_rank_that_nobody_waits_for_is_not_to_blame) {
  EXPECT_EQ(verdict({waits_for({2}), that_is(State::silent), that_is(State::at_work)}),
            "all wait for rank 2, at work");
  EXPECT_EQ(verdict({waits_for({2}), that_is(State::at_work), that_is(State::left)}),
            "all wait for rank 2, which left the job");
  EXPECT_EQ(verdict({waits_for({1}), waits_for({0}, 3), that_is(State::at_work)}),
            "all waits lead to rank 0, which waits at pass 1, layer 0, rows for rank 1, and rank "
            "1, which waits at pass 1, layer 3, rows for rank 0");
  EXPECT_EQ(verdict({waits_for({}), waits_for({0}), that_is(State::silent)}),
            "all wait for rank 2, silent")
      << "nobody knows for whom rank 0 waits";
}

TEST(RollCall, who_has_come_to_a_meeting_is_not_awaited) {
  const Meeting third{.group = 7, .number = 3};
  const Meeting fourth{.group = 7, .number = 4};
  EXPECT_EQ(verdict({waits_for({0, 1, 2, 3}, 0, third), waits_for({0, 1, 2, 3}, 0, third),
                     waits_for({3}, 2), waits_for({0, 1, 2, 3}, 0, fourth)}),
            "all waits lead to rank 2, which waits at pass 1, layer 2, rows for rank 3, and rank "
            "3, which waits at pass 1, layer 0, rows for rank 0, rank 1, rank 2");
  const Meeting of_others{.group = 8, .number = 3};
  EXPECT_EQ(verdict({waits_for({0, 1, 2}, 0, third), waits_for({1, 2}, 1, of_others),
                     waits_for({0, 1, 2}, 2, third)}),
            "all waits lead to rank 1, which waits at pass 1, layer 1, rows for rank 2, and rank "
            "2, which waits at pass 1, layer 2, rows for rank 1");
}

TEST(RollCall, a_rank_that_waited_in_vain_and_left_is_told_with_its_place) {
  std::vector<RankReport> told(3);
  for (RankReport& report : told) report.state = RankReport::State::left;
  const RowLabel place = RowLabel{.step = 3, .layer = 2, .phase = {}}.at("rows");
  told[1].place = place;
  told[1].waited_seconds = 5;
  std::string_view("barrier: waiting for rank 2").copy(told[1].waiting.data(), 64);
  try {
    ToldRollCall(told).call(place, {"rank 0 of 3: barrier: waiting for rank 2", {2}},
                            std::chrono::steady_clock::now());
  } catch (const LostRank& error) {
    EXPECT_EQ(
        test::without_times(error.what()),
        "all wait for rank 2, which left the job\n"
        "  rank 0: pass 3, layer 2, rows: barrier: waiting for rank 2, for T s\n"
        "  rank 1: pass 3, layer 2, rows: barrier: waiting for rank 2, for T s, and has left the "
        "job\n"
        "  rank 2: has left the job");
  }
}

}  // namespace
}  // namespace moesaic
