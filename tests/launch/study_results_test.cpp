// study.jsonl where several drivers work on one study.

#include "launch/study/study_results.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/output_file.h"
#include "launch/study/point_file.h"
#include "launch/study/point_record.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(WriteResults, TakePointsThatCameWhileAnotherProcessWroteThem) {
  const test::TemporaryDirectory directory;
  StudyConfig config;
  config.out = directory.path();
  const PointPlace place(config.out);
  place.make();
  PointRecord record{.id = "first", .kind = "strong", .job = "prompt"};
  record.ranks = 2;
  record.error = PointError{4, "no memory"};
  const std::string point = point_record_json(record);
  test::write_text(place.file("first"), point);
  std::atomic<bool> is_done = false;
  std::size_t rows = 0;
  std::optional<OutputFile> turn;
  turn.emplace(config.out + "/study.jsonl.lock", OutputFile::Mode::kept);
  ASSERT_TRUE(turn->lock());
  std::thread task([&] {
    rows = write_results(config, {"first", "second"}).size();
    is_done = true;
  });
  for (int i = 0; i < 20 && !is_done; ++i) {  // one that does not wait is done by then
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  test::write_text(place.file("second"), point);
  turn.reset();
  task.join();
  EXPECT_EQ(rows, 2U);
}

}  // namespace
}  // namespace moesaic
