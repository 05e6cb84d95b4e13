#include "comm/exchange_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

/// Adds events numbered from 0 on; with `fails`, on the way out of an error.
void trace(const std::string& path, int events, bool fails) {
  ExchangeTrace trace(path);
  const std::string missing(1000, 'x');
  for (int i = 0; i < events; ++i) {
    trace.add({.what = "start",
               .exchange = static_cast<std::uint64_t>(i) + 1,
               .ranks = 4,
               .label = RowLabel{.step = i, .layer = -1}.at("rows"),
               .rows = 3,
               .bytes = 300,
               .missing = missing});
  }
  if (fails) fail(ErrorKind::peer, "the job fails");
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(test::read_text(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line, "line"));
  return lines;
}

TEST(ExchangeTrace, TheLastEventsOfAJobThatFailsAreThereInOrder) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("rank-0.jsonl");
  for (const int events : {3, 256, 300, 1000}) {
    EXPECT_THROW(trace(path, events, true), Error);
    const std::vector<Json> lines = lines_of(path);
    ASSERT_EQ(std::ssize(lines), std::min(events, 256));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto number = events - std::ssize(lines) + static_cast<std::int64_t>(i);
      EXPECT_EQ(lines[i].at("event").as_int(), number);
      EXPECT_EQ(lines[i].at("exchange").as_int(), number + 1);
      EXPECT_EQ(lines[i].at("step").as_int(), number);
      EXPECT_EQ(lines[i].at("layer").as_int(), -1);
      EXPECT_EQ(lines[i].at("phase").as_string(), "rows");
      EXPECT_EQ(lines[i].at("bytes").as_int(), 300);
      EXPECT_EQ(lines[i].at("missing").as_string(), std::string(128, 'x'));
    }
  }
}

TEST(ExchangeTrace, AFullDiskLosesEventsAndNothingElse) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("rank-0.jsonl");
  for (const bool has_room_later : {false, true}) {
    const auto run = [&] {
      ExchangeTrace trace(path);
      const auto add = [&](std::uint64_t exchange) {
        trace.add({.what = "start", .exchange = exchange});
      };
      {
        const test::FileSizeLimit limit(800);  // two events, and the beginning of one
        for (std::uint64_t exchange = 1; exchange <= 5; ++exchange) add(exchange);
      }
      if (has_room_later) add(6);
      fail(ErrorKind::peer, "the job fails");
    };
    EXPECT_THROW(run(), Error);
    std::vector<std::int64_t> exchanges;
    for (const Json& line : lines_of(path)) exchanges.push_back(line.at("exchange").as_int());
    std::vector<std::int64_t> expected = {1, 2};
    if (has_room_later) expected.push_back(6);
    EXPECT_EQ(exchanges, expected);
  }
}

TEST(ExchangeTrace, NothingIsLeftOfAJobThatIsDone) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("rank-0.jsonl");
  trace(path, 300, false);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THROW(ExchangeTrace(directory.path_of("none/rank-0.jsonl")), Error);
}

}  // namespace
}  // namespace moesaic
