// Options of sampling, seen from outside.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

ProgramResult run(const Arguments& more) {
  const ProgramResult result = run_moesaic(joined(generate_with({"-n", "24"}), more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return result;
}

std::vector<std::int64_t> ids(const Arguments& more) {
  std::vector<std::int64_t> result;
  Json::parse(lines_of(run(joined({"--json"}, more)).out).at(0), "line 1")
      .at("ids")
      .for_each([&](const std::string&, const Json& id) { result.push_back(id.as_int()); });
  return result;
}

/// A line of results.
struct Line {
  std::int64_t index = 0;
  std::int64_t sample = 0;
  std::string text;
  std::vector<std::int64_t> ids;

  [[nodiscard]] bool operator==(const Line&) const = default;
};

/// The texts of a file of requests.
std::vector<Line> run_lines(const std::string& requests, int ranks, const Arguments& more = {}) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("requests.jsonl");
  write_text(file, requests);
  const ProgramResult result =
      run_ranks(ranks, joined({"generate", "-m", kDemo, "-f", file, "--json", "-n", "8"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  std::vector<Line> lines;
  for (const std::string& text : lines_of(result.out)) {
    const Json json = Json::parse(text, "result");
    if (!json.contains("index")) continue;
    Line& line = lines.emplace_back();
    line.index = json.at("index").as_int();
    if (const auto sample = json.find("sample")) line.sample = sample->as_int();
    line.text = json.at("text").as_string();
    json.at("ids").for_each(
        [&](const std::string&, const Json& id) { line.ids.push_back(id.as_int()); });
  }
  return lines;
}

TEST(Sampling, DefaultsAreTheModelsAndTheBannerSaysSo) {
  // The demo model says 0.7, 40 and 0.95.
  const ProgramResult result = run({});
  EXPECT_NE(result.err.find("sampling: temp 0.7, top-k 40, top-p 0.95 (generation_config.json); "
                            "seed 0 (default)"),
            std::string::npos)
      << result.text();
  EXPECT_EQ(run({"--temp", "0.7"}).out, result.out);
  EXPECT_NE(run({"--temp", "0.8"}).out, result.out) << "the default of the option";

  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string config = read_text(model + "/generation_config.json");
  write_text(model + "/generation_config.json",
             replaced(config, "\"do_sample\": true", "\"do_sample\": false"));
  EXPECT_EQ(run({"-m", model}).out, run({"--temp", "0"}).out);
  write_text(model + "/generation_config.json",
             replaced(config, "\"temperature\": 0.7", "\"temperature\": -1"));
  expect_failure(run_moesaic(generate_with({"-m", model})), 3,
                 {"generation_config.json", "temperature"});
}

TEST(Sampling, EveryOptionReachesTheSampler) {
  std::set<std::vector<std::int64_t>> different = {ids({"--temp", "1.5", "--top-k", "0"})};
  for (const Arguments& more : std::vector<Arguments>{{"--min-p", "0.2"},
                                                      {"--repeat-penalty", "1.5"},
                                                      {"--presence-penalty", "1"},
                                                      {"--frequency-penalty", "2"},
                                                      {"--top-p", "0.5"},
                                                      {"--top-k", "3"},
                                                      {"--seed", "5"}}) {
    const Arguments all = joined({"--temp", "1.5", "--top-k", "0"}, more);
    EXPECT_TRUE(different.insert(ids(all)).second) << testing::PrintToString(more);
  }
}

TEST(Sampling, TopKMinusOneIsNoLimit) {
  EXPECT_EQ(ids({"--temp", "1.5", "--top-k", "-1"}), ids({"--temp", "1.5", "--top-k", "0"}));
  const std::vector<Line> lines = run_lines(
      "{\"prompt\": \"In\", \"top_k\": -1, \"seed\": 1}\n{\"prompt\": \"In\", \"top_k\": 0, "
      "\"seed\": 1}\n",
      1);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].ids, lines[1].ids);
}

TEST(Sampling, PenaltiesKeepATextFromRepeating) {
  const auto all_differ = [](const std::vector<std::int64_t>& tokens) {
    return std::set<std::int64_t>(tokens.begin(), tokens.end()).size() == tokens.size();
  };
  const std::vector<std::int64_t> free = ids({"--temp", "0", "-n", "60"});
  EXPECT_FALSE(all_differ(free));
  EXPECT_TRUE(all_differ(ids({"--temp", "0", "-n", "60", "--presence-penalty", "100"})));
  EXPECT_FALSE(all_differ(
      ids({"--temp", "0", "-n", "60", "--presence-penalty", "100", "--repeat-last-n", "3"})));
  EXPECT_EQ(ids({"--temp", "0", "-n", "60", "--presence-penalty", "100", "--repeat-last-n", "0"}),
            free);
}

TEST(Sampling, ABiasForbidsAndForces) {
  const std::vector<std::int64_t> free = ids({"--temp", "0"});
  const std::string first = std::to_string(free.front());
  const std::vector<std::int64_t> without = ids({"--temp", "0", "--logit-bias", first + "-inf"});
  EXPECT_EQ(std::ranges::count(without, free.front()), 0);
  EXPECT_EQ(ids({"-l", first + "+1000"}), std::vector<std::int64_t>(24, free.front()));
  expect_failure(run_moesaic(generate_with({"-l", "99999+1"})), 2, {"99999", "2048"});
}

TEST(Sampling, TextsEndBeforeAStopString) {
  const std::string free = run({"--temp", "0", "--no-display-prompt"}).out;
  ASSERT_GT(free.size(), 30U);
  const std::string stop = free.substr(12, 7);  // across tokens
  for (const int ranks : {1, 3}) {
    const ProgramResult stopped =
        run_ranks(ranks, generate_with({"-n", "24", "--temp", "0", "--no-display-prompt", "--stop",
                                        "no such text", "--stop", stop}));
    EXPECT_EQ(stopped.out, free.substr(0, free.find(stop)) + "\n") << stopped.text();
  }
}

TEST(Sampling, TheContinuationAloneIsPrinted) {
  const std::string prompt = "In the beginning";
  const std::string whole = run({"--temp", "0"}).out;
  EXPECT_EQ(prompt + run({"--temp", "0", "--no-display-prompt"}).out, whole);
}

TEST(Sampling, ADrawnSeedCanBeUsedAgain) {
  const ProgramResult drawn = run({"--seed", "-1"});
  const std::size_t at = drawn.err.find("seed ");
  ASSERT_NE(at, std::string::npos) << drawn.text();
  const std::string seed = drawn.err.substr(at + 5, drawn.err.find(' ', at + 5) - at - 5);
  EXPECT_EQ(run({"--seed", seed}).out, drawn.out) << seed;
  EXPECT_EQ(run_ranks(3, generate_with({"-n", "24", "--seed", seed})).out, drawn.out);
  // Statistics tell it too, beside what else decides a text.
  const ProgramResult told =
      run_ranks(2, generate_with({"--seed", "-1", "--json", "--min-p", "0.1", "--presence-penalty",
                                  "0.5", "-l", "9-2"}));
  const std::vector<std::string> lines = lines_of(told.out);
  ASSERT_EQ(lines.size(), 2U) << told.text();
  const Json sampling = Json::parse(lines[1], "line").at("statistics").at("sampling");
  EXPECT_EQ(sampling.at("min_p").as_double(), 0.1);
  EXPECT_EQ(sampling.at("presence_penalty").as_double(), 0.5);
  EXPECT_EQ(sampling.at("repetition_penalty").as_double(), 1);
  EXPECT_EQ(sampling.at("logit_bias").at("9").as_double(), -2);
  EXPECT_EQ(sampling.at("top_k").as_int(), 40);
  const std::string drawn_seed = std::to_string(sampling.at("seed").as_int());
  EXPECT_NE(told.err.find("seed " + drawn_seed + " (drawn)"), std::string::npos) << told.err;
}

TEST(Sampling, BadValuesAreRefusedBeforeAnythingIsLoaded) {
  for (const Arguments& more :
       std::vector<Arguments>{{"--top-p", "0"}, {"--repeat-penalty", "0"}, {"-l", "7"}}) {
    const ProgramResult result = run_moesaic(generate_with(more));
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.find("weights"), std::string::npos) << result.text();
  }
}

TEST(Requests, EachLineHasItsOwnOptions) {
  const std::string requests =
      "{\"prompt\": \"In the beginning\", \"max_tokens\": 3, \"temperature\": 0}\n"
      "{\"prompt\": \"In the beginning\", \"max_tokens\": 20, \"seed\": 5, \"temperature\": 1.5, "
      "\"top_k\": 0, \"top_p\": 1, \"min_p\": 0.01, \"repetition_penalty\": 1.1, "
      "\"presence_penalty\": 0.5, \"frequency_penalty\": 0.1}\n"
      "{\"prompt\": \"In the beginning\"}\n"
      "{\"prompt\": \"In the beginning\", \"temperature\": 0, \"logit_bias\": {\"5\": 1000}}\n";
  const std::vector<Line> one = run_lines(requests, 1);
  ASSERT_EQ(one.size(), 4U);
  EXPECT_EQ(one[0].ids, ids({"--temp", "0", "-n", "3"}));
  EXPECT_EQ(one[1].ids, ids({"-n", "20", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p",
                             "0.01", "--repeat-penalty", "1.1", "--presence-penalty", "0.5",
                             "--frequency-penalty", "0.1", "--seed", "5"}))
      << "a seed of its own makes a line independent of its place";
  EXPECT_EQ(one[3].ids, std::vector<std::int64_t>(8, 5));
  for (const int ranks : {2, 3}) EXPECT_EQ(run_lines(requests, ranks), one) << ranks;
  EXPECT_EQ(run_lines(requests, 1, {"--parallel", "1"}), one);
}

TEST(Requests, PromptsMayBeTokens) {
  const ProgramResult tokens =
      run_moesaic({"tokenize", "-m", kDemo, "-p", "In the beginning", "--json"});
  const Json line = Json::parse(lines_of(tokens.out).at(0), "tokens");
  std::string list;
  line.at("ids").for_each([&](const std::string&, const Json& id) {
    list += (list.empty() ? "" : ", ") + std::to_string(id.as_int());
  });
  const std::string request = "{\"prompt\": [" + list + "]}\n";
  const std::vector<Line> lines = run_lines(request, 1);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].ids, ids({"-n", "8"}));

  const TemporaryDirectory directory;
  const std::string file = directory.path_of("tokens.jsonl");
  write_text(file, request);
  EXPECT_EQ(run_moesaic({"tokenize", "-m", kDemo, "-f", file, "--json"}).out, tokens.out);
  write_text(file, "{\"prompt\": [3, 2048]}\n");
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file}), 3,
                 {"tokens.jsonl line 1", "2048"});
}

TEST(Requests, SamplesOfAPromptDifferAndShareIt) {
  std::string prompt =
      "In the beginning God created the heaven and the earth. And the earth was "
      "without form, and void; and darkness was upon the face of the deep. And "
      "the Spirit of God moved upon the face of the waters.";
  const std::string requests =
      "{\"prompt\": \"" + prompt + "\", \"n\": 3}\n{\"prompt\": \"" + prompt + "\"}\n";
  const std::vector<Line> one = run_lines(requests, 1);
  ASSERT_EQ(one.size(), 4U);
  std::set<std::vector<std::int64_t>> different;
  for (const Line& line : one) different.insert(line.ids);
  EXPECT_EQ(different.size(), 4U);
  EXPECT_EQ(one[2].index, 0);
  EXPECT_EQ(one[2].sample, 2);
  EXPECT_EQ(one[3].index, 1);
  for (const int ranks : {2, 4}) EXPECT_EQ(run_lines(requests, ranks), one) << ranks;

  for (const int ranks : {1, 3}) {
    const ProgramResult result = run_ranks(
        ranks, {"generate", "-m", kDemo, "-p", prompt, "-n", "4", "--num-return", "3", "--json"});
    const Json statistics = Json::parse(lines_of(result.out).back(), "last line").at("statistics");
    const std::int64_t length =
        Json::parse(lines_of(result.out).at(0), "line 1").at("usage").at("prompt_tokens").as_int();
    EXPECT_GT(length, 40);
    EXPECT_EQ(statistics.at("prompt").at("tokens").as_int(), length + 2) << result.text();
  }
  const ProgramResult text = run_moesaic(
      {"generate", "-m", kDemo, "-p", "In", "-n", "4", "--num-return", "2", "--no-display-prompt"});
  EXPECT_NE(text.out.find("--- prompt 1 of 1, sample 2 of 2\n"), std::string::npos) << text.text();
}

TEST(Requests, SamplesOfAShortPromptAreNotComputedTwice) {
  for (const int ranks : {2, 3}) {
    const ProgramResult result = run_ranks(ranks, {"generate", "-m", kDemo, "-p", "In the", "-n",
                                                   "200", "--num-return", "8", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const std::vector<std::string> lines = lines_of(result.out);
    const Json statistics = Json::parse(lines.back(), "last line").at("statistics");
    const std::int64_t length =
        Json::parse(lines.at(0), "line 1").at("usage").at("prompt_tokens").as_int();
    EXPECT_LE(statistics.at("prompt").at("tokens").as_int(), 8 * length)
        << "a rank had more texts than its cache, and dropped some: " << result.text();
  }
}

TEST(Requests, MinusOneGoesOnUntilTheContextIsFull) {
  for (const char* context : {"30", "50"}) {
    const ProgramResult result = run_moesaic({"generate", "-m", kDemo, "-p", "In the beginning",
                                              "-n", "-1", "-c", context, "--ignore-eos", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const Json line = Json::parse(lines_of(result.out).at(0), "line 1");
    EXPECT_EQ(line.at("usage").at("total_tokens").as_int(), std::stoi(context));
    EXPECT_EQ(line.at("finish_reason").as_string(), "length");
  }
  expect_failure(
      run_moesaic({"generate", "-m", kDemo, "-p", "In the beginning", "-n", "-1", "-c", "3"}), 2,
      {"--prompt", "exceed the context of 3"});
}

TEST(Results, LogprobsAreTheSameOnAnyRanks) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("requests.jsonl");
  write_text(file,
             "{\"prompt\": \"In the beginning\", \"temperature\": 0}\n"
             "{\"prompt\": \"And God\", \"logprobs\": 0, \"temperature\": 0}\n");
  const Arguments arguments = {"generate", "-m", kDemo,    "-f",         file,
                               "-n",       "5",  "--json", "--logprobs", "3"};
  const auto results = [&](int ranks) {
    std::vector<std::string> lines = lines_of(run_ranks(ranks, arguments).out);
    lines.pop_back();  // statistics
    return lines;
  };
  const std::vector<std::string> one = results(1);
  ASSERT_EQ(one.size(), 2U);
  EXPECT_EQ(results(2), one);
  const Json line = Json::parse(one[0], "line 1");
  const Json content = line.at("logprobs").at("content");
  ASSERT_EQ(content.size(), 5);
  std::string text;
  for (std::int64_t i = 0; i < content.size(); ++i) {
    const Json token = content.at(i);
    EXPECT_EQ(token.at("id").as_int(), line.at("ids").at(i).as_int());
    ASSERT_EQ(token.at("top_logprobs").size(), 3);
    EXPECT_EQ(token.at("top_logprobs").at(0).at("id").as_int(), token.at("id").as_int());
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob").as_double(),
              token.at("logprob").as_double());
    EXPECT_LE(token.at("logprob").as_double(), 0);
    text += token.at("token").as_string();
  }
  EXPECT_EQ(text, line.at("text").as_string());
  const Json none = Json::parse(one[1], "line 2").at("logprobs").at("content").at(0);
  EXPECT_EQ(none.at("top_logprobs").size(), 0);
  expect_failure(run_moesaic(generate_with({"--logprobs", "3"})), 2, {"--logprobs", "--json"});
}

TEST(Results, TheStopIsTold) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("requests.jsonl");
  const std::string free = run({"--temp", "0", "--no-display-prompt"}).out;
  const std::string stop = free.substr(12, 7);
  write_text(file,
             "{\"prompt\": \"In the beginning\", \"id\": \"a\", \"max_tokens\": 24, "
             "\"temperature\": 0, \"stop\": " +
                 json_quote(stop) + "}\n");
  const ProgramResult result = run_ranks(2, {"generate", "-m", kDemo, "-f", file, "--json"});
  const Json line = Json::parse(lines_of(result.out).at(0), "line 1");
  EXPECT_EQ(line.at("version").as_int(), 1);
  EXPECT_EQ(line.at("id").as_string(), "a");
  EXPECT_EQ(line.at("finish_reason").as_string(), "stop");
  EXPECT_EQ(line.at("stop").as_string(), stop);
  EXPECT_EQ(line.at("text").as_string(), free.substr(0, free.find(stop)));
}

TEST(Requests, WhatIsWrongInALineIsNamedWithIt) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("requests.jsonl");
  const auto fails = [&](const std::string& line, int code, const std::vector<std::string>& texts) {
    write_text(file, "{\"prompt\": \"In\"}\n" + line + "\n");
    expect_failure(run_ranks(2, {"generate", "-m", kDemo, "-f", file, "--strict"}), code, texts);
  };
  fails("{\"prompt\": \"In\", \"max_token\": 5}", 3,
        {"requests.jsonl line 2", "\"max_token\"", "did you mean \"max_tokens\""});
  fails("{\"prompt\": \"In\", \"temperature\": \"hot\"}", 3, {"line 2: temperature"});
  fails("{\"prompt\": \"In\", \"top_p\": 7}", 2, {"line 2: top-p", "7"});
  fails("{\"prompt\": \"In\", \"max_tokens\": 5000}", 2, {"line 2", "exceed the context"});
  fails("{\"messages\": []}", 2, {"line 2", "--chat"});
}

}  // namespace
}  // namespace moesaic::test
