#include "comm/checked_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/comm/communicator_conformance.h"

namespace moesaic {
namespace {

/// The error of a body that calls a checked group of two thread ranks; it must be the same on both.
std::string error_of(const std::function<void(Communicator&)>& body) {
  auto ranks = make_thread_communicators(2);
  std::vector<std::string> messages(2, "no error");
  run_thread_ranks(2, [&](Communicator& outer) {
    const auto rank = static_cast<std::size_t>(outer.rank());
    const auto comm = make_checked_communicator(std::move(ranks[rank]));
    try {
      body(*comm);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      const std::string message = error.what();
      EXPECT_NE(message.find("comm/checked_communicator.cpp:"), std::string::npos) << message;
      messages[rank] = message.substr(message.find(": ") + 2);
    }
  });
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

TEST(CheckedCommunicator, lets_right_calls_through) {
  auto ranks = make_thread_communicators(3);
  run_thread_ranks(3, [&](Communicator& outer) {
    const auto comm =
        make_checked_communicator(std::move(ranks[static_cast<std::size_t>(outer.rank())]));
    EXPECT_EQ(comm->transport(), "threads");
    conformance::everything(*comm, 200);
  });
}

TEST(CheckedCommunicator, names_the_ranks_whose_calls_differ) {
  EXPECT_EQ(error_of([](Communicator& comm) {
              std::vector<std::int64_t> values(5);
              if (comm.rank() == 0) {
                comm.sum(values);
              } else {
                comm.barrier();
              }
            }),
            "the ranks do not make the same call: rank 0: sum bytes 40; rank 1: barrier");
}

TEST(CheckedCommunicator, names_the_arguments_that_differ) {
  EXPECT_EQ(error_of([](Communicator& comm) {
              std::vector<std::byte> data(comm.rank() == 0 ? 8 : 16);
              comm.broadcast(data, comm.rank());
            }),
            "the ranks do not make the same call: rank 0: broadcast bytes 8 root 0; rank 1: "
            "broadcast bytes 16 root 1");
  EXPECT_EQ(
      error_of([](Communicator& comm) {
        const std::vector<std::int64_t> none(2);
        (void)comm.exchange_rows({nullptr, 4 + comm.rank(), 8, {}, none}, none);
      }),
      "the ranks do not make the same call: rank 0: exchange_rows row_bytes 4 tag_bytes 0; rank 1: "
      "exchange_rows row_bytes 5 tag_bytes 0");
}

TEST(CheckedCommunicator, compares_row_counts_pair_by_pair) {
  EXPECT_EQ(error_of([](Communicator& comm) {
              const std::vector<std::byte> row(4);
              const std::vector<std::int32_t> rows(comm.rank() == 0 ? 2 : 0);
              const std::vector<std::int64_t> send = {0, comm.rank() == 0 ? 2 : 0};
              const std::vector<std::int64_t> recv = {comm.rank() == 1 ? 3 : 0, 0};
              (void)comm.exchange_rows({row.data(), 4, 4, rows, send}, recv);
            }),
            "exchange_rows: the row counts do not fit: rank 0 sends 2 to rank 1, which expects 3");
}

}  // namespace
}  // namespace moesaic
