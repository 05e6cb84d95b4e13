#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/launch/program.h"
#include "tests/support/model_copies.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// Texts of `requests`, lines of JSON, by a model of tests/data: on one rank and on three, and of
/// its packed weights on two.
inline void expect_same_texts(const std::string& fixture, const std::string& requests) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model(fixture, model);
  write_text(model + "/tokenizer.json", read_text(kData + "/models/qwen2_moe-v4/tokenizer.json"));
  const std::string prompts = directory.path_of("prompts.jsonl");
  write_text(prompts, requests);
  const auto generate = [&](int ranks, const std::string& from) {
    const std::string out = directory.path_of("out" + std::to_string(ranks));
    const ProgramResult result = run_ranks(ranks, {"generate", "-m", from, "-f", prompts, "-n",
                                                   "12", "--ignore-eos", "-t", "1", "--out", out});
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const std::string lines = read_text(out);
    return lines.substr(lines.find('\n'));  // what it was made of stands before
  };
  const std::string expected = generate(1, model);
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(generate(3, model), expected);
  const std::string packed = directory.path_of("packed");
  EXPECT_EQ(run_moesaic({"convert", "-m", model, "-o", packed}).exit_code, 0);
  EXPECT_EQ(generate(2, packed), expected);
}

}  // namespace moesaic::test
