#include "launch/job/written_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "launch/sft/metrics.h"
#include "launch/sft/sft_output.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(IsWithin, TakesNamesOfWhatIsNotThere) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_TRUE(is_within("no-such-folder/file", here + "/no-such-folder"));
  EXPECT_TRUE(is_within(here + "/no-such-folder/file", "no-such-folder"));
  EXPECT_TRUE(is_within("no-such-folder", here));
  EXPECT_FALSE(is_within("no-such-folder-either", here + "/no-such-folder"));
  EXPECT_EQ(full_path("a/../no-such-file"), here + "/no-such-file");
}

TEST(OutputDirectory, IsThatOfARunWhileWhatIsOldIsRemoved) {
  const test::TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  std::filesystem::create_directories(out);
  for (const char* file : {"options.ini", "metrics.jsonl", "adapter_config.json"}) {
    test::write_text(out + "/" + file, "");
  }
  Options options;
  options.output_dir = out;
  options.overwrite = true;
  for (int run = 0; run < 2; ++run) {  // the first comes no further
    OutputDirectory(options).begin(options, 0);
    EXPECT_TRUE(std::filesystem::exists(out + "/options.ini"));
    EXPECT_FALSE(std::filesystem::exists(out + "/metrics.jsonl"));
    test::write_text(out + "/notes.txt", "of somebody");
  }
}

TEST(MetricsFile, KeepsLinesThatTheDiskHasNoRoomFor) {
  const test::TemporaryDirectory directory;
  MetricsFile metrics(directory.path(), -1);
  EXPECT_EQ(metrics.add(StepMetrics{.step = 1}), "");
  const std::string path = directory.path_of("metrics.jsonl");
  {
    const test::FileSizeLimit full(static_cast<std::int64_t>(std::filesystem::file_size(path)) + 9);
    EXPECT_NE(metrics.add(StepMetrics{.step = 2}).find(path), std::string::npos);
    EXPECT_NE(metrics.add(EvalMetrics{.step = 2}), "");
    EXPECT_THROW(metrics.write(R"({"event": "save"})"), Error);
  }
  EXPECT_EQ(metrics.add(StepMetrics{.step = 3}), "");
  EXPECT_EQ(test::read_text(path),
            metrics_line(StepMetrics{.step = 1}) + "\n" + metrics_line(StepMetrics{.step = 2}) +
                "\n" + metrics_line(EvalMetrics{.step = 2}) + "\n" + R"({"event": "save"})" + "\n" +
                metrics_line(StepMetrics{.step = 3}) + "\n");
}

}  // namespace
}  // namespace moesaic
