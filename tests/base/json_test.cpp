#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace moesaic {
namespace {

std::string json_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

TEST(Json, reads_members_and_elements) {
  const Json json =
      Json::parse(R"({"a": 3, "b": [1.5, "x", null], "c": {"d": true}, "n": null})", "f");
  EXPECT_EQ(json.at("a").as_int(), 3);
  EXPECT_EQ(json.at("b").at(1).as_string(), "x");
  EXPECT_DOUBLE_EQ(json.at("b").at(std::int64_t{0}).as_double(), 1.5);
  EXPECT_TRUE(json.at("c").at("d").as_bool());
  EXPECT_FALSE(json.find("n").has_value());
  EXPECT_FALSE(json.find("zz").has_value());
}

TEST(Json, messages_name_file_field_and_value) {
  const Json json = Json::parse(R"({"a": {"b": "text"}})", "config.json");
  EXPECT_EQ(json_error([&] { (void)json.at("a").at("b").as_int(); }),
            "config.json: a.b: expected an integer, found string \"text\"");
  EXPECT_EQ(json_error([&] { (void)json.at("q"); }), "config.json: field \"q\" is missing");
}

TEST(Json, messages_show_the_beginning_of_long_values) {
  const auto shown = [](const std::string& text) {
    const Json json = Json::parse("{\"a\": " + text + "}", "f");
    const std::string told = json_error([&] { (void)json.at("a").as_bool(); });
    return told.substr(told.find("found ") + 6);
  };
  EXPECT_EQ(shown("[1, {\"b\": \"c\", \"d\": [], \"e\": {}}, null]"),
            "array [1,{\"b\":\"c\",\"d\":[],\"e\":{}},null]");
  std::string many = "[1";
  for (int i = 0; i < 100; ++i) many += ",1";
  EXPECT_EQ(shown(many + "]"), "array " + many.substr(0, 57) + "...");
  const std::string letters(58, 'x');
  EXPECT_EQ(shown("\"" + letters + "\""), "string \"" + letters + "\"");
  EXPECT_EQ(shown("\"" + letters + "xx\""), "string \"" + letters.substr(2) + "...");
}

TEST(Json, whole_floats_are_integers_and_large_values_are_not) {
  const Json json = Json::parse(R"({"a": 1e6, "b": 1.5, "c": 18446744073709551615})", "f");
  EXPECT_EQ(json.at("a").as_int(), 1000000);
  EXPECT_NE(json_error([&] { (void)json.at("b").as_int(); }), "no error");
  EXPECT_NE(json_error([&] { (void)json.at("c").as_int(); }), "no error");
}

TEST(Json, integers_beyond_64_bits_are_known_from_floats) {
  const Json json = Json::parse(
      R"({"least": -9223372036854775808, "below": -9223372036854775809, "float": -1e20, "list":
          [1.5, 18446744073709551616, {"most": 18446744073709551615}, 2.0]})",
      "f");
  EXPECT_EQ(json.at("least").as_int(), INT64_MIN);
  EXPECT_FALSE(json.at("least").is_long_integer());
  EXPECT_TRUE(json.at("below").is_long_integer());
  EXPECT_FALSE(json.at("float").is_long_integer());
  const Json list = json.at("list");
  const auto is_long = [&](std::int64_t index) { return list.at(index).is_long_integer(); };
  EXPECT_FALSE(is_long(0));
  EXPECT_TRUE(is_long(1));
  EXPECT_FALSE(is_long(3));
  EXPECT_TRUE(list.at(std::int64_t{2}).at("most").is_long_integer());
  EXPECT_EQ(json_error([&] { (void)json.at("below").as_int(); }),
            "f: below: expected an integer from -2^63 on, found number -9.223372036854776e+18");
  EXPECT_EQ(json_error([&] { (void)list.at(std::int64_t{1}).as_int(); }),
            "f: list[1]: expected an integer below 2^63, found number 1.8446744073709552e+19");
  EXPECT_EQ(json.at("below").as_double(), -0x1p63);
}

TEST(Json, integers_stay_within_their_range) {
  const Json json = Json::parse(R"({"a": 1, "b": 7})", "f");
  EXPECT_EQ(json.at("a").as_int(1, 7), 1);
  EXPECT_EQ(json.at("b").as_int(1, 7), 7);
  EXPECT_EQ(json_error([&] { (void)json.at("a").as_int(2, 7); }), "f: a: 1 is not from 2 to 7");
  EXPECT_EQ(json_error([&] { (void)json.at("b").as_int(2, 6); }), "f: b: 7 is not from 2 to 6");
}

TEST(Json, refuses_duplicates_and_broken_text) {
  EXPECT_NE(json_error([] { (void)Json::parse(R"({"a": 1, "a": 2})", "f"); }).find("twice"),
            std::string::npos);
  EXPECT_NE(json_error([] { (void)Json::parse(R"({"a": )", "f"); }).find("not valid JSON"),
            std::string::npos);
  // The same key in two objects is fine.
  EXPECT_NO_THROW((void)Json::parse(R"({"a": {"x": 1}, "b": {"x": 1}})", "f"));
}

TEST(Json, places_of_an_error_are_told_once) {
  const auto message = [](std::string_view text) {
    return json_error([&] { (void)Json::parse(text, "many.jsonl line 14"); });
  };
  EXPECT_TRUE(
      message("not").starts_with("many.jsonl line 14: not valid JSON: parse error at "
                                 "column 2: "))
      << message("not");
  EXPECT_NE(message("{\n  \"a\": }\n").find("at line 2, column 8: "), std::string::npos)
      << message("{\n  \"a\": }\n");
}

TEST(Json, members_keep_the_order_of_the_document) {
  for (const int count : {3, 15, 16, 17, 100}) {
    std::string text;
    std::string wanted;
    for (int i = 0; i < count; ++i) {
      const std::string name = "k" + std::to_string(i * 7919 % 1000);
      text += (i == 0 ? "{\"" : ", \"") + name + "\": " + std::to_string(i);
      wanted += name + " ";
    }
    const Json json = Json::parse(text + "}", "f");
    std::string found;
    json.for_each([&](const std::string& key, const Json& value) {
      EXPECT_EQ(json.at(key).as_int(), value.as_int());
      found += key + " ";
    });
    EXPECT_EQ(found, wanted);
    EXPECT_FALSE(json.contains("zz"));
  }
}

TEST(Json, takes_linear_time_on_large_objects) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) {
    text += "\"key " + std::to_string(i) + "\": {\"a\": [1, 2]}, ";
  }
  // In quadratic time this would run into the time limit of the tests.
  EXPECT_EQ(Json::parse(text + "\"last\": 1}", "f").size(), 100'001);
}

TEST(Json, refuses_absurd_nesting) {
  EXPECT_EQ(json_error([] { (void)Json::parse(std::string(100'000, '['), "f"); }),
            "f: nested deeper than 200 levels");
  EXPECT_NO_THROW((void)Json::parse(std::string(200, '[') + std::string(200, ']'), "f"));
}

TEST(JsonStrings, are_a_list) {
  EXPECT_EQ(json_strings(std::vector<std::string>{"a\"", "", "b"}), R"(["a\"", "", "b"])");
  EXPECT_EQ(json_strings(std::vector<std::string_view>()), "[]");
}

TEST(JsonWriter, quotes_and_escapes) {
  JsonWriter writer;
  writer.field("text", "a\"b\n").field("n", 3).field("x", 0.5).field("t", true);
  EXPECT_EQ(writer.text(), R"({"text": "a\"b\n", "n": 3, "x": 0.5, "t": true})");
  EXPECT_EQ(json_quote("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(JsonWriter, numbers_that_are_not_finite_are_null) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  JsonWriter writer;
  writer.field("a", kInfinity).field("b", -kInfinity).field("c", std::nan(""));
  EXPECT_EQ(writer.text(), R"({"a": null, "b": null, "c": null})");
}

TEST(JsonFloat, is_no_integer) {
  EXPECT_EQ(json_float(2), "2.0");
  EXPECT_EQ(json_float(-0.5), "-0.5");
  EXPECT_EQ(json_float(1e30), "1e+30");
}

}  // namespace
}  // namespace moesaic
