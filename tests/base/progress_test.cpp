#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace moesaic {
namespace {

/// The standard error output goes elsewhere while it lives.
class ErrorOutput {
 public:
  explicit ErrorOutput(int file) { dup2(file, STDERR_FILENO); }
  ~ErrorOutput() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::clearerr(stderr);
  }
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;

 private:
  int before_ = dup(STDERR_FILENO);
};

/// Until the bar of a terminal may be drawn again.
void wait_for_the_next_bar() {
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
}

TEST(Progress, draws_a_bar_and_lives_with_an_output_that_is_full) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (terminal < 0 || full < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no terminals or no /dev/full here";
  }
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(screen, 0);
  {
    const ErrorOutput output(screen);
    Progress progress("loading", false);
    progress.update(1, 4);  // too early
    wait_for_the_next_bar();
    progress.update(2, 4);
    std::array<char, 512> text{};
    ASSERT_GT(read(terminal, text.data(), text.size() - 1), 0);
    EXPECT_NE(std::string(text.data()).find("50 % 2 B of 4 B"), std::string::npos) << text.data();
    const ErrorOutput lost(full);
    wait_for_the_next_bar();
    EXPECT_NO_THROW(progress.update(3, 4));
    EXPECT_NE(std::ferror(stderr), 0) << "nothing was drawn";
  }
  for (const int file : {screen, full, terminal}) close(file);
}

}  // namespace
}  // namespace moesaic
