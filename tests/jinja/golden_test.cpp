// What tools/make_chat_goldens.py recorded from Jinja, as transformers sets it up: small templates
// about one thing each must give the same texts, or be refused as well.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "src/jinja/template.h"

namespace moesaic::jinja {
namespace {

Dict variables() {
  const Value all = value_of(Json::read_file(MOESAIC_TEST_DATA "/jinja/variables.json"));
  return *all.dict();
}

/// "[begin, end) ..." of what generation blocks made.
std::string spans_of(const Json& line) {
  std::string spans;
  if (const auto generated = line.find("generated")) {
    generated->for_each([&](const std::string&, const Json& pair) {
      spans += std::to_string(pair.at(std::int64_t{0}).as_int()) + "-" +
               std::to_string(pair.at(1).as_int()) + " ";
    });
  }
  return spans;
}

TEST(JinjaGolden, texts_are_those_of_jinja) {
  const Dict known = variables();
  std::ifstream file(MOESAIC_TEST_DATA "/jinja/golden.jsonl");
  std::string text;
  int cases = 0;
  int refused = 0;
  while (std::getline(file, text)) {
    ++cases;
    const Json line = Json::parse(text, "golden.jsonl line " + std::to_string(cases));
    const std::string source = line.at("template").as_string();
    const auto expected = line.find("text");
    try {
      const Rendered rendered = Template::parse(source, "golden").render(known);
      if (expected) {
        EXPECT_EQ(rendered.text, expected->as_string()) << source;
        std::string spans;
        for (const Generated& span : rendered.generated) {
          spans += std::to_string(span.begin) + "-" + std::to_string(span.end) + " ";
        }
        EXPECT_EQ(spans, spans_of(line)) << source;
      } else {
        ADD_FAILURE() << source << " should be refused, but gives: " << rendered.text;
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_FALSE(expected) << source << ": " << error.what();
    }
  }
  EXPECT_GT(cases, 400);
  EXPECT_GT(refused, 40);
}

}  // namespace
}  // namespace moesaic::jinja
