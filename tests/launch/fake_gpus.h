#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "tests/launch/program.h"

namespace moesaic::test {

/// Variables with which the program finds the fake driver.
inline Variables on_fake_gpus(const Variables& more = {}) {
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  Variables variables = {{"LD_LIBRARY_PATH", std::string(MOESAIC_FAKE_DRIVER_FOLDER) +
                                                 (path != nullptr ? ":" + std::string(path) : "")}};
  variables.insert(more.begin(), more.end());
  return variables;
}

inline bool has_line(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

inline Arguments portable(const std::string& format, const std::string& which) {
  return {"--numerics", "portable", "--expert-format", format, "--gpu-experts", which};
}

/// A short `bench layer`; `layer`, `formats` and `tokens` as its options.
inline Arguments layer_bench(const std::string& layer, const std::string& formats,
                             const std::string& tokens, const Arguments& more) {
  return joined(
      {"bench", "layer", "--layer", layer, "--formats", formats, "--tokens", tokens, "--seconds",
       "0", "--footprint", "1M", "--routing", "even", "-t", "1", "-o", "csv"},
      more);
}

/// Logits of the demo model with experts on such GPUs.
class FakeGpus : public testing::Test {
 protected:
  FakeGpus() { write_text(text_, "And God said,"); }

  [[nodiscard]] Arguments score(const Arguments& more) const {
    return joined({"score", "-m", kDemo, "-f", text_, "--logits-out", logits_, "-t", "1"}, more);
  }
  /// The logits that a run has written, and what it told.
  struct Run {
    std::string logits;
    std::string told;
  };
  [[nodiscard]] Run run(const Arguments& command, const Variables& variables = on_fake_gpus()) {
    const ProgramResult result = run_program(command, variables);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return {result.exit_code == 0 ? read_text(logits_) : "", result.err};
  }
  [[nodiscard]] Run run_score(int ranks, const Arguments& more) {
    return run(ranks_command(ranks, score(more)));
  }
  [[nodiscard]] std::string file(const std::string& name, const std::string& content) const {
    write_text(directory_.path_of(name), content);
    return directory_.path_of(name);
  }

 private:
  TemporaryDirectory directory_;
  std::string text_ = directory_.path_of("text.txt");
  std::string logits_ = directory_.path_of("logits");
};

}  // namespace moesaic::test
