// Which bytes each token stands for, as tools/make_span_goldens.py recorded it from the
// `tokenizers` library.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// Its model puts an unknown character behind the bytes of the next one, and the library counts
/// spans in that order: they are not where the text is.
const std::set<std::string> kElsewhere = {"partial_bytes"};

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::size_t> numbers_of(const Json& array) {
  std::vector<std::size_t> numbers;
  array.for_each([&](const std::string&, const Json& number) {
    numbers.push_back(static_cast<std::size_t>(number.as_int()));
  });
  return numbers;
}

std::vector<std::size_t> flat(const std::vector<Span>& spans) {
  std::vector<std::size_t> numbers;
  for (const Span& span : spans) numbers.insert(numbers.end(), {span.begin, span.end});
  return numbers;
}

TEST(Spans, are_those_of_the_library) {
  int tokenizers = 0;
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(MOESAIC_TEST_DATA "/tokenizers")) {
    const std::string name = entry.path().filename();
    if (kElsewhere.contains(name)) continue;
    ++tokenizers;
    const Tokenizer tokenizer = Tokenizer::from_directory(entry.path());
    const std::vector<std::string> goldens = lines_of(entry.path() / "golden.jsonl");
    for (const std::string& line : lines_of(entry.path() / "spans.jsonl")) {
      const Json expected = Json::parse(line, name + " spans.jsonl");
      const auto number = static_cast<std::size_t>(expected.at("line").as_int());
      const std::string text = Json::parse(goldens.at(number - 1), "golden").at("text").as_string();
      const EncodedText encoded = tokenizer.encode_with_spans(text, false);
      EXPECT_EQ(encoded.ids, tokenizer.encode(text, false));
      ASSERT_EQ(encoded.spans.size(), encoded.ids.size());
      EXPECT_EQ(flat(encoded.spans), numbers_of(expected.at("spans")))
          << name << " line " << number << ": " << json_quote(text);
      ++cases;
    }
  }
  EXPECT_GT(tokenizers, 15);
  EXPECT_GT(cases, 500);
}

TEST(Spans, tokens_of_the_post_processor_stand_for_nothing) {
  const Tokenizer tokenizer = Tokenizer::from_directory(MOESAIC_TEST_DATA "/tokenizers/mixtral");
  const EncodedText encoded = tokenizer.encode_with_spans("a b", true);
  EXPECT_EQ(encoded.ids, tokenizer.encode("a b", true));
  ASSERT_EQ(encoded.spans.size(), encoded.ids.size());
  EXPECT_EQ(encoded.spans[0].size(), 0U);
  EXPECT_EQ(encoded.spans.back().end, 3U);
}

}  // namespace
}  // namespace moesaic
