#include "base/text_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moesaic {
namespace {

std::vector<std::string> texts_of(std::string_view text) {
  std::vector<std::string> texts;
  TextLines lines(text);
  while (const auto line = lines.next()) texts.emplace_back(line->text);
  return texts;
}

TEST(TextLines, EndAtANewlineOrWithTheText) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of(""), Texts{});
  EXPECT_EQ(texts_of("\n"), Texts{""});
  EXPECT_EQ(texts_of("a"), Texts{"a"});
  EXPECT_EQ(texts_of("a\nb\n"), (Texts{"a", "b"}));
  EXPECT_EQ(texts_of("a\n\nb"), (Texts{"a", "", "b"}));
  EXPECT_EQ(texts_of("a\r\nb\r"), (Texts{"a", "b"}));
  EXPECT_EQ(texts_of("a\rb\r\r\n"), (Texts{"a\rb\r"})) << "one before the end alone is of it";
  EXPECT_EQ(texts_of("a\v\f\xC2\x85"), (Texts{"a\v\f\xC2\x85"}));
  EXPECT_EQ(texts_of(std::string_view("a\0b\nc", 5)), (Texts{std::string("a\0b", 3), "c"}));
}

TEST(TextLines, KnowWhereTheyStandAndHowFarTheyGo) {
  TextLines lines("a\n \t\r\n\nb\r\n\n");
  const auto first = lines.next_filled();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->where("file"), "file line 1");
  EXPECT_EQ(first->end, 2);
  const auto second = lines.next_filled();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->text, "b");
  EXPECT_EQ(second->where("file"), "file line 4");
  EXPECT_EQ(second->end, 10);
  EXPECT_FALSE(lines.next_filled());
  EXPECT_FALSE(lines.next());
}

}  // namespace
}  // namespace moesaic
