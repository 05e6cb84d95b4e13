#include "src/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace moesaic {
namespace {

const std::string kBad(kReplacementCharacter);

TEST(Utf8, knows_valid_text) {
  for (const std::string text : {"", "abc", "é", "€", "😀", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
  for (const std::string text : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF", "a\xE2\x82"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << text;
  }
}

// The table of the Unicode standard, chapter 3.9 (U+FFFD substitution of maximal subparts), and
// what Python's bytes.decode(errors="replace") gives.
TEST(Utf8, replaces_maximal_parts) {
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"),
            kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), kBad + kBad + kBad);
  EXPECT_EQ(replace_invalid_utf8("ok é €"), "ok é €");
}

TEST(Utf8, repair_gives_the_same_for_any_parts) {
  const std::string bytes = "a\xC3\xA9\xF0\x9F\x98\x80\xE2\x82\x41\xFF\xF0\x9F\x98";
  const std::string whole = replace_invalid_utf8(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    for (std::size_t second = cut; second <= bytes.size(); ++second) {
      Utf8Repair repair;
      std::string out;
      repair.push(bytes.substr(0, cut), out);
      repair.push(bytes.substr(cut, second - cut), out);
      EXPECT_TRUE(is_valid_utf8(out));
      repair.push(bytes.substr(second), out);
      repair.finish(out);
      EXPECT_EQ(out, whole) << cut << ' ' << second;
    }
  }
}

TEST(Utf8, code_points_there_and_back) {
  for (std::uint32_t code_point = 0; code_point < 0x110000; code_point += 0x1F) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    append_utf8(code_point, text);
    ASSERT_TRUE(is_valid_utf8(text)) << code_point;
    ASSERT_EQ(utf8_length(text[0]), text.size());
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), code_point);
    ASSERT_EQ(at, text.size());
  }
}

}  // namespace
}  // namespace moesaic
