#include "launch/verbs/result_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/verbs/record_file.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(ResultFile, KnowsWhatIsThere) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const RunIdentity identity{.inputs = "a", .model = "b", .options = "{\"temp\": \"0.5\"}"};
  {
    ResultFile file(path, identity);
    file.append("{\"index\": 3}");
    file.append("{\"index\": 4, \"sample\": 1}");
    EXPECT_THROW(ResultFile(path, identity), Error) << "it is being written";
  }
  const std::string whole = read_text(path);
  write_text(path, whole + "{\"index\": 5}");  // no end: it may have been cut short
  const ResultFile file(path, identity);
  EXPECT_TRUE(file.has(3, 0));
  EXPECT_TRUE(file.has(4, 1));
  EXPECT_FALSE(file.has(4, 0));
  EXPECT_FALSE(file.has(5, 0));
  EXPECT_EQ(read_text(path), whole);
}

TEST(ResultFile, EveryCutOfAFileIsMended) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const RunIdentity identity{.inputs = "a", .model = "b", .options = "{}"};
  ResultFile(path, identity).append("{\"index\": 0}");
  const std::string whole = read_text(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_text(path, whole.substr(0, size));
    ResultFile file(path, identity);
    EXPECT_FALSE(file.has(0, 0));
    file.append("{\"index\": 0}");
    EXPECT_EQ(read_text(path), whole) << "cut after " << size << " bytes";
  }
  write_text(path, whole + "zero\n");
  EXPECT_THROW(ResultFile(path, identity), Error);
}

/// The memory of this process is such a file: nothing is at its beginning.
TEST(RecordFile, WhatCannotBeReadIsNotCutOff) {
  const RunIdentity identity{.inputs = "a", .model = "b", .options = "{}"};
  for (const auto others : {RecordFile::Others::refused, RecordFile::Others::replaced}) {
    const std::string message = error_message(
        [&] {
          RecordFile(
              "/proc/self/mem", {.records = "results", .inputs = "prompts", .option = "--out"},
              identity, [](const Json&) {}, others);
        },
        ErrorKind::file);
    EXPECT_EQ(message, "/proc/self/mem: cannot be read: Input/output error");
  }
}

}  // namespace
}  // namespace moesaic::test
