#include "src/generate/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace moesaic {
namespace {

struct Result {
  std::string text;
  std::string found;  // "-": none
  bool operator==(const Result&) const = default;
};

/// The text in pieces of random lengths.
Result run(const std::vector<std::string>& strings, std::string_view text, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  StopStrings stops(strings);
  Result result;
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, 1 + random() % 4);
    text.remove_prefix(piece.size());
    result.text += stops.push(piece);
  }
  result.text += stops.finish();
  result.found = stops.found().value_or("-");
  return result;
}

TEST(StopStrings, texts_end_before_the_string_that_ends_first_however_they_are_cut) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(run({"\n\n", "END"}, "one\ntwo\n\nthree END", seed), (Result{"one\ntwo", "\n\n"}));
    EXPECT_EQ(run({"END", "\n\n"}, "one EN ENEND\n\n", seed), (Result{"one EN EN", "END"}));
    EXPECT_EQ(run({"abcd", "bc"}, "xabcd", seed), (Result{"xa", "bc"})) << "ends first";
    EXPECT_EQ(run({"bc", "abc"}, "xabcd", seed), (Result{"x", "abc"})) << "the longest";
    EXPECT_EQ(run({"aab"}, "aaaab", seed), (Result{"aa", "aab"}));
    EXPECT_EQ(run({"stop"}, "no such thing, sto", seed), (Result{"no such thing, sto", "-"}));
    EXPECT_EQ(run({"", "ä"}, "größe ä", seed), (Result{"größe ", "ä"}));
    EXPECT_EQ(run({}, "text", seed), (Result{"text", "-"}));
  }
}

TEST(StopStrings, only_what_may_become_a_stop_string_is_held_back) {
  StopStrings stops({"</s>"});
  EXPECT_EQ(stops.push("a < b"), "a < b");
  EXPECT_EQ(stops.push("a <"), "a ");
  EXPECT_EQ(stops.push("/"), "");
  EXPECT_EQ(stops.push("<"), "</");
  EXPECT_EQ(stops.push("/s>rest"), "");
  EXPECT_TRUE(stops.found().has_value());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, random_texts_are_cut_where_a_search_finds_the_string) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const auto word = [&](std::size_t length) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::string text = word(30);
    const std::string stop = word(1 + random() % 7);
    const std::size_t at = text.find(stop);
    const Result expected =
        at == std::string::npos ? Result{text, "-"} : Result{text.substr(0, at), stop};
    EXPECT_EQ(run({stop}, text, random()), expected) << text << ' ' << stop;
  }
}

}  // namespace
}  // namespace moesaic
