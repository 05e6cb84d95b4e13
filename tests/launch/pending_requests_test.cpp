// Requests between the lines that they come from and the texts that are written.

#include "launch/verbs/pending_requests.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

class Pending : public testing::Test {
 protected:
  void begin(ResultFile* file = nullptr) {
    output.emplace(TextOutput::Parts{options, log, tokenizer, list.demand(), file},
                   Arrival::meanwhile);
    pending.emplace(list, file, *output);
  }
  /// A line with so many samples; whether it can be run.
  void arrive(std::int64_t samples, bool good = true) {
    RequestFields fields;
    fields.n = samples;
    Prompt prompt{.text = fmt::format("text {}", list.demand().prompts),
                  .where = fmt::format("line {}", list.demand().prompts + 1),
                  .said = std::make_shared<const RequestFields>(fields)};
    if (good) {
      list.add(prompt, {1, 2}, [](std::int64_t, std::int64_t) {});
    } else {
      prompt.error = Error(ErrorKind::file, "is bad");
      list.add_bad(prompt);
    }
    pending->add_new();
  }
  void finish(RequestId request) {
    Finished finished;
    finished.request = request;
    finished.text = fmt::format("request {}", request);
    pending->take(finished);
  }
  /// Calls, and gives "index text" of each result that is printed meanwhile, or "index error".
  static std::vector<std::string> printed(const std::function<void()>& call) {
    testing::internal::CaptureStdout();
    call();
    std::vector<std::string> results;
    std::string text = testing::internal::GetCapturedStdout();
    for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.erase(0, end + 1)) {
      const Json line = Json::parse(text.substr(0, end), "output");
      const std::string result = line.at(line.contains("error") ? "error" : "text").as_string();
      results.push_back(fmt::format("{} {}", line.at("index").as_int(), result));
    }
    return results;
  }

  using Lines = std::vector<std::string>;
  Options options = [] {
    Options made;
    made.json = true;
    return made;
  }();
  Log log;
  Tokenizer tokenizer = Tokenizer::from_directory(MOESAIC_TEST_DATA "/demo-model");
  RequestList list{{.context_tokens = 32, .vocab_size = 100}};
  std::optional<TextOutput> output;
  std::optional<PendingRequests> pending;
};

TEST_F(Pending, ResultsStandInTheOrderOfTheirPrompts) {
  begin();
  EXPECT_FALSE(pending->has_next());
  const Lines first = printed([&] {
    arrive(1, false);
    arrive(1);
    arrive(2);
    arrive(1, false);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(pending->next().has_value());
    EXPECT_FALSE(pending->next().has_value());
    EXPECT_EQ(pending->name_of(0), "line 2");
    EXPECT_EQ(pending->name_of(2), "line 3, sample 2 of 2");
    finish(2);
    finish(1);
  });
  EXPECT_EQ(first, Lines{"0 is bad"});
  EXPECT_EQ(printed([&] { EXPECT_EQ(output->end(), "1 of 5 texts are finished"); }), Lines{});
  EXPECT_EQ(printed([&] { finish(0); }),
            (Lines{"1 request 0", "2 request 1", "2 request 2", "3 is bad"}));
  EXPECT_EQ(output->end(), "5 of 5 texts are finished");
}

TEST_F(Pending, UnorderedOnesAreWrittenAtOnce) {
  options.unordered = true;
  begin();
  const Lines results = printed([&] {
    arrive(1);
    arrive(1);
    arrive(1, false);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(pending->next().has_value());
    finish(1);
    finish(0);
  });
  EXPECT_EQ(results, (Lines{"2 is bad", "1 request 1", "0 request 0"}));
}

TEST_F(Pending, PromptsOfALongInputAreForgottenWhenTheyAreFinished) {
  for (const bool unordered : {false, true}) {
    options.unordered = unordered;
    list = RequestList({.context_tokens = 32, .vocab_size = 100});
    begin();
    const Lines results = printed([&] {
      for (int i = 0; i < 100; ++i) {
        arrive(1 + i % 3);
        arrive(1, false);
        for (int sample = 0; sample < 1 + i % 3; ++sample) (void)pending->next();
        if (i == 0) continue;  // the first one takes longer than all
        EXPECT_LE(list.kept(), 2);
        for (int sample = 0; sample < 1 + i % 3; ++sample) {
          finish(list.demand().requests - list.bad().prompts() - 1 - sample);
        }
        EXPECT_EQ(list.kept(), 1) << i;
      }
      finish(0);
      EXPECT_EQ(list.kept(), 0);
    });
    EXPECT_EQ(results.size(), 299U);
  }
}

TEST_F(Pending, WhatIsInTheFileIsNotAskedFor) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("texts.jsonl");
  const RunIdentity identity{.inputs = "a", .model = "b", .options = "{}"};
  {
    ResultFile file(path, identity);
    file.append(R"({"index": 0})");
    file.append(R"({"index": 1, "sample": 1})");
  }
  std::optional<ResultFile> file(std::in_place, path, identity);
  begin(&*file);
  arrive(1);
  arrive(3);
  EXPECT_EQ(list.kept(), 1) << "the first one is there";
  EXPECT_EQ(pending->next()->group, 1);
  EXPECT_TRUE(pending->next().has_value());
  EXPECT_EQ(pending->name_of(1), "line 2, sample 3 of 3");
  EXPECT_FALSE(pending->has_next());
  finish(1);
  EXPECT_EQ(output->end(), "2 of 4 texts are finished");
  finish(0);
  EXPECT_EQ(output->end(), "4 of 4 texts are finished");
  EXPECT_EQ(list.kept(), 0);
  file.reset();
  file.emplace(path, identity);
  for (const int sample : {0, 1, 2}) EXPECT_TRUE(file->has(1, sample));
}

}  // namespace
}  // namespace moesaic
