// Ranks that work for longer than others wait.

#include "comm/long_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/interruption.h"
#include "comm/thread_communicator.h"
#include "tests/support/counter.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

void work_for(LongWork& work, std::chrono::milliseconds time) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < time) {
    work.advance((std::chrono::steady_clock::now() - start).count(),
                 std::chrono::nanoseconds(time).count());
    std::this_thread::sleep_for(10ms);
  }
}

TEST(LongWork, a_rank_that_makes_progress_is_waited_for_longer_than_the_deadline) {
  const auto body = [](Communicator& comm) {
    LongWork work(comm, "loading");
    if (comm.rank() == 1) work_for(work, 6s);
    if (comm.rank() == 2) work_for(work, 1s);
    work.finish();
    std::int64_t sum = 1;
    comm.sum(std::span(&sum, 1));  // all are in step again
    EXPECT_EQ(sum, 3);
  };
  EXPECT_NO_THROW(run_thread_ranks(3, body, {.timeout = 2s}));
}

TEST(LongWork, a_rank_that_stops_is_named_with_what_it_had_done) {
  std::string message;
  test::Counter gave_up;
  const auto load = [&](Communicator& comm) {
    LongWork work(comm, "loading");
    if (comm.rank() == 1) {
      for (int i = 0; i < 100; ++i) {
        work.advance(42, 100);
        std::this_thread::sleep_for(10ms);
      }
      gave_up.wait_for(1, [] {});
    }
    work.finish();
  };
  const auto body = [&](Communicator& comm) {
    try {
      load(comm);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      if (comm.rank() == 0) message = error.what();
      gave_up.add();
    }
  };
  run_thread_ranks(2, body, {.timeout = 2s});
  EXPECT_EQ(test::without_times(message),
            "all wait for rank 1, silent\n"
            "  rank 0: loading: exchange_rows: waiting for the rows of rank 1, for T s\n"
            "  rank 1: silent\n"
            "  still loading when last heard of: rank 1 (42 %)");
}

TEST(LongWork, ranks_at_work_are_interrupted_when_another_has_given_up) {
  run_thread_ranks(4, [](Communicator& comm) {
    LongWork work(comm, "merging");
    if (comm.rank() == 1) {
      work.give_up();
    } else if (comm.rank() == 2) {
      work.finish();
    } else {
      const auto endless = [&] {
        for (;;) work_for(work, 10ms);
      };
      EXPECT_THROW(endless(), Interrupted);
      comm.rank() == 0 ? work.give_up() : work.finish();
    }
    std::int64_t sum = 1;
    comm.sum(std::span(&sum, 1));  // all are in step again
    EXPECT_EQ(sum, 4);
  });
}

TEST(LongWork, pieces_of_work_follow_each_other) {
  run_thread_ranks(4, [](Communicator& comm) {
    for (int piece = 0; piece < 20; ++piece) {
      LongWork work(comm, "converting");
      if (piece % comm.size() == comm.rank()) work_for(work, 30ms);
      work.finish();
    }
  });
}

}  // namespace
}  // namespace moesaic
