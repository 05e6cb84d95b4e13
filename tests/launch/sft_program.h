#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "src/checkpoint/safetensors.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

// moesaic sft, as its tests start it and read what it writes.

namespace moesaic::test {

inline const std::string kConversations = kData + "/demo-sft.jsonl";

/// A short run of the demo model into `out`.
inline Arguments sft(const std::string& out, const Arguments& more = {},
                     const std::string& data = kConversations) {
  return joined(
      {"sft", "-m", kDemo, "--data", data, "-o", out, "--lr", "0.003", "--lora-rank", "4",
       "--global-batch-size", "4", "--max-steps", "6", "--threads", "1", "--log-level", "warning"},
      more);
}

inline void expect_done(const ProgramResult& result) {
  ASSERT_EQ(result.exit_code, 0) << result.text();
}

/// The same of another length.
inline Arguments with_steps(const std::string& steps, Arguments arguments) {
  *(std::ranges::find(arguments, "--max-steps") + 1) = steps;
  return arguments;
}

inline std::string adapter(const std::string& out) {
  return read_text(out + "/adapter_model.safetensors");
}

/// All numbers of a tensor in f32.
inline std::vector<float> numbers(const TensorView& tensor) {
  EXPECT_EQ(tensor.dtype, DType::f32) << tensor.name;
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// The lines of metrics.jsonl of one kind.
inline std::vector<Json> events(const std::string& out, std::string_view kind) {
  std::vector<Json> found;
  for (const std::string& text : lines_of(read_text(out + "/metrics.jsonl"))) {
    const Json line = Json::parse(text, "metrics.jsonl");
    if (line.at("event").as_string_view() == kind) found.push_back(line);
  }
  return found;
}

/// Step and loss of these.
inline std::vector<std::pair<std::int64_t, double>> losses(const std::string& out,
                                                           std::string_view kind) {
  std::vector<std::pair<std::int64_t, double>> found;
  for (const Json& line : events(out, kind)) {
    found.emplace_back(line.at("step").as_int(), line.at("loss").as_double());
  }
  return found;
}

}  // namespace moesaic::test
