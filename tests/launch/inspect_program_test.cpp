// What moesaic inspect tells of a model that is not as it should be.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(Inspect, CountsTokensBeyondTheVocabulary) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  EXPECT_EQ(run_moesaic({"inspect", model}).out.find("beyond"), std::string::npos);
  const std::string path = model + "/tokenizer.json";
  write_text(path, replaced(read_text(path), "\"added_tokens\": [",
                            "\"added_tokens\": [{\"id\": 5000, \"content\": \"<far>\", "
                            "\"special\": true, \"normalized\": false, \"single_word\": false, "
                            "\"lstrip\": false, \"rstrip\": false},"));
  const ProgramResult text = run_moesaic({"inspect", model});
  EXPECT_NE(text.out.find("1 of its tokens is beyond the vocabulary"), std::string::npos)
      << text.text();
  const Json json = Json::parse(run_moesaic({"inspect", model, "--json"}).out, "inspect");
  EXPECT_EQ(json.at("tokens_beyond_vocabulary").as_int(), 1);
}

TEST(Inspect, NamesMissingTensors) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const auto broken = std::ranges::find(broken_models(), "TensorMissing", &BrokenModel::name);
  broken->break_it(model);
  const ProgramResult result = run_moesaic({"inspect", model, "--json"});
  expect_failure(result, 3, {"1 tensor", "model.layers.0.mlp.experts.0.down_proj.weight"});
  const Json json = Json::parse(result.out, "inspect");
  EXPECT_EQ(json.at("missing").size(), 1);
  EXPECT_EQ(json.at("unknown").at(std::int64_t{0}).as_string(), "model.layers.0.other");
  EXPECT_EQ(json.at("unindexed").size(), 0);
}

TEST(Inspect, TellsWhatTheIndexLeavesOut) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("models/mixtral-v4-window-sharded", model);
  const std::string index = model + "/model.safetensors.index.json";
  const std::string name = "lm_head.weight";
  write_text(index, replaced(read_text(index),
                             "\"" + name + "\": \"model-00007-of-00007.safetensors\",", ""));
  const ProgramResult result = run_moesaic({"inspect", model, "--json"});
  expect_failure(result, 3, {"1 tensor", name});
  const Json left = Json::parse(result.out, "inspect").at("unindexed");
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left.at(std::int64_t{0}).as_string(), name);
  EXPECT_NE(run_moesaic({"inspect", model}).out.find("not in index  1\n    " + name),
            std::string::npos);
}

TEST(Inspect, TellsAllElseOfAModelWhoseTokenizerIsBroken) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string path = model + "/tokenizer.json";
  const std::string whole = read_text(path);
  for (const std::string& text : {std::string("{"), replaced(whole, "\"merges\"", "\"merged\"")}) {
    write_text(path, text);
    const ProgramResult result = run_moesaic({"inspect", model, "--json"});
    expect_failure(result, 3, {path});
    const Json json = Json::parse(result.out, "inspect");
    EXPECT_FALSE(json.contains("tokenizer") || json.contains("tokens_beyond_vocabulary"));
    EXPECT_TRUE(json.contains("packed_expert_bytes"));
    const ProgramResult table = run_moesaic({"inspect", model});
    expect_failure(table, 3, {path});
    EXPECT_NE(table.out.find("on GPUs"), std::string::npos) << table.text();
    EXPECT_EQ(table.out.find("tokenizer"), std::string::npos) << table.text();
  }
  write_text(path, replaced(whole, "\"type\": \"BPE\"", "\"type\": \"Unigram\""));
  const ProgramResult other = run_moesaic({"inspect", model, "--json"});
  EXPECT_EQ(other.exit_code, 0) << other.text();
  EXPECT_EQ(Json::parse(other.out, "inspect").at("tokenizer").as_string(), "Unigram");
}

}  // namespace
}  // namespace moesaic::test
