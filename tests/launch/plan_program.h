#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/sparse_model.h"

namespace moesaic::test {

/// Of JSON.
inline Json last_line(const ProgramResult& result) {
  const std::string text = result.out.substr(0, result.out.find_last_not_of('\n') + 1);
  return Json::parse(text.substr(text.rfind('\n') + 1), "output");
}

inline Json plan(const Arguments& more) {
  const ProgramResult result = run_moesaic(joined({"plan", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return last_line(result);
}

/// Prompts of the same length, no two with the same beginning.
struct Prompts {
  std::int64_t count = 1;
  std::int64_t tokens = 100;  // of each
  std::int64_t vocab = 4096;  // all of which they use, if they are long enough
};

inline std::string prompt_lines(const Prompts& prompts) {
  std::string text;
  for (std::int64_t prompt = 0; prompt < prompts.count; ++prompt) {
    text += "{\"prompt\": [";
    for (std::int64_t i = 0; i < prompts.tokens; ++i) {
      const std::int64_t token = (prompt * prompts.tokens + i) * 7919 % prompts.vocab;
      text += fmt::format("{}{}", i == 0 ? "" : ", ", token);
    }
    text += "]}\n";
  }
  return text;
}

/// Plans of small models, and runs of what was planned.
class Plan : public ::testing::Test {
 protected:
  std::string model(const SparseModel& sizes) {
    const std::string path = directory_.path_of(fmt::format("model{}", models_++));
    write_sparse_model(path, sizes);
    return path;
  }
  std::string file(const std::string& name, const std::string& text) const {
    write_text(directory_.path_of(name), text);
    return directory_.path_of(name);
  }
  /// What a run of generate says of itself.
  Json generate(int ranks, const Prompts& prompts, const Arguments& more) const {
    const ProgramResult result =
        run_ranks(ranks, joined({"generate", "--json", "--ignore-eos", "--temp", "0", "-f",
                                 file("prompts.jsonl", prompt_lines(prompts))},
                                more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return last_line(result).at("statistics");
  }

  TemporaryDirectory directory_;
  int models_ = 0;
};

}  // namespace moesaic::test
