#include "tests/comm/mpi_test_main.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

const MpiSession* session = nullptr;  // set once, by main

/// A rank that failed leaves the others waiting: end all of them at once.
class AbortOnFailure final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    if (info.result()->Failed() && session->size() > 1) session->abort(1);
  }
};

}  // namespace

const MpiSession& mpi_test_session() {
  return *session;
}

}  // namespace moesaic

int main(int argc, char** argv) {
  const moesaic::MpiSession session(&argc, &argv);
  moesaic::session = &session;
  testing::InitGoogleTest(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  listeners.Append(new moesaic::AbortOnFailure);  // the printer comes first
  return RUN_ALL_TESTS();
}
