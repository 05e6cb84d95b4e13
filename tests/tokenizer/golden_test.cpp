// What tools/make_tokenizer_goldens.py recorded from the `tokenizers` library: ids and texts must
// be the same. MOESAIC_TOKENIZER_GOLDENS names another folder of such records, for longer checks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

fs::path golden_folder() {
  const char* other = std::getenv("MOESAIC_TOKENIZER_GOLDENS");
  return other != nullptr ? other : MOESAIC_TEST_DATA "/tokenizers";
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden_folder())) {
    if (fs::exists(entry.path() / "golden.jsonl")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::int32_t> ids_of(const Json& array) {
  std::vector<std::int32_t> ids;
  array.for_each([&](const std::string&, const Json& id) {
    ids.push_back(static_cast<std::int32_t>(id.as_int()));
  });
  return ids;
}

/// The input of a case: its "text", or its "bytes" where that is not UTF-8.
std::string input_of(const Json& line) {
  if (const auto text = line.find("text")) return text->as_string();
  std::string bytes;
  line.at("bytes").for_each([&](const std::string&, const Json& byte) {
    bytes.push_back(static_cast<char>(byte.as_int()));
  });
  return bytes;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(part)) << "a character came out in parts";
    text += part;
  }
  return text += decoder.finish();
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void check_texts(const std::vector<std::int32_t>& ids, const Json& line,
                   const std::string& kind) {
    for (const bool skip : {false, true}) {
      // The library fails on some ids; there is nothing to compare then.
      const auto expected = line.find(kind + (skip ? "_skip" : "_all"));
      if (!expected) continue;
      ++texts_;
      EXPECT_EQ(tokenizer_.decode(ids, skip), expected->as_string()) << line.where();
      EXPECT_EQ(streamed(tokenizer_, ids, skip), expected->as_string()) << line.where();
    }
  }

  fs::path folder_ = golden_folder() / GetParam();
  Tokenizer tokenizer_ = Tokenizer::from_directory(folder_);
  int texts_ = 0;
};

TEST_P(GoldenTest, ids_and_texts_are_those_of_the_library) {
  std::ifstream file(folder_ / "golden.jsonl");
  std::string text;
  int cases = 0;
  while (std::getline(file, text) && !HasFailure()) {
    const Json line = Json::parse(text, "golden.jsonl line " + std::to_string(++cases));
    const std::string input = input_of(line);
    const std::vector<std::int32_t> ids = ids_of(line.at("ids"));
    EXPECT_EQ(tokenizer_.encode(input), ids) << line.where() << ": " << json_quote(input);
    const auto plain_ids = line.find("plain_ids");
    EXPECT_EQ(tokenizer_.encode(input, false), plain_ids ? ids_of(*plain_ids) : ids)
        << line.where();
    check_texts(ids, line, "text");
    check_texts(ids_of(line.at("random_ids")), line, "random");
  }
  EXPECT_GT(cases, 100);
  EXPECT_GT(texts_, cases);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest, testing::ValuesIn(golden_names()),
                         [](const auto& name) {
                           std::string letters = name.param;
                           for (char& c : letters) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return letters;
                         });

}  // namespace
}  // namespace moesaic
