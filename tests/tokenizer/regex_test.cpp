#include "src/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "src/tokenizer/regex_syntax.h"

namespace moesaic {
namespace {

std::vector<std::string> parts(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  for (const Span& match : Regex::compile(pattern, "p").find_all(text)) {
    found.emplace_back(match.of(text));
  }
  return found;
}

using Parts = std::vector<std::string>;

TEST(Regex, plain_patterns_pass_unchanged) {
  const std::string qwen =
      R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+)";
  EXPECT_EQ(pcre2_pattern(qwen, "p"), qwen);
}

TEST(Regex, classes_inside_classes_and_intersections) {
  EXPECT_EQ(parts("[a[bc]]+", "xabcab"), (Parts{"abcab"}));
  EXPECT_EQ(parts("[^a[bc]]+", "xyazbc"), (Parts{"xy", "z"}));
  EXPECT_EQ(parts("[a-z&&[^aeiou]]+", "hello world"), (Parts{"h", "ll", "w", "rld"}));
  EXPECT_EQ(parts("[^a-z&&[^aeiou]]+", "ab1e"), (Parts{"a", "1e"}));
  EXPECT_EQ(parts(R"([\p{L}&&[^\p{Han}]]+)", "ab漢字cd"), (Parts{"ab", "cd"}));
}

TEST(Regex, escapes_mean_what_they_mean_in_oniguruma) {
  EXPECT_EQ(parts(R"(\w+)", "añ_1-e\u0301²"), (Parts{"añ_1", "e\u0301²"}));
  EXPECT_EQ(parts(R"([\W])", "a-b"), (Parts{"-"}));
  EXPECT_EQ(parts(R"([^\w])", "a²b"), (Parts{"²"}));
  EXPECT_EQ(parts(R"([[:word:]]+)", "a²b"), (Parts{"a", "b"}));
  EXPECT_EQ(parts(R"(\bé\w)", "éa aéa"), (Parts{"éa"}));
  EXPECT_EQ(parts(R"(\h+)", "xyzCAFE9"), (Parts{"CAFE9"}));
  EXPECT_EQ(parts(R"([[:punct:]]+)", "a+!b€"), (Parts{"+!", "€"}));
  EXPECT_EQ(parts(R"([[:^alpha:]]+)", "a12b"), (Parts{"12"}));
  EXPECT_EQ(parts(R"(\u00e9)", "aé"), (Parts{"é"}));
  EXPECT_EQ(parts(R"((?m:a.b))", "a\nb"), (Parts{"a\nb"}));
  EXPECT_EQ(parts(R"(\s+$)", "a  \nb "), (Parts{"  ", " "}));
}

/// By what `tokenizers` 0.22 matches of all code points.
TEST(Regex, properties_have_the_names_of_posix_classes) {
  EXPECT_EQ(parts(R"(\p{Alnum}+)", "añ1_²٣"), (Parts{"añ1", "٣"}));
  EXPECT_EQ(parts(R"(\p{al num}+)", "a_1"), (Parts{"a", "1"}));
  EXPECT_EQ(parts(R"(\P{Alnum}+)", "a_-1"), (Parts{"_-"}));
  EXPECT_EQ(parts(R"(\p{^Alnum}+)", "a_-1"), (Parts{"_-"}));
  EXPECT_EQ(parts(R"([^\s\p{Alnum}]+)", "a+ -1"), (Parts{"+", "-"}));
  EXPECT_EQ(parts(R"([\P{Alnum}x]+)", "ax+1"), (Parts{"x+"}));
  EXPECT_EQ(parts(R"(\p{Alpha}+\p{Digit}\p{XDigit})", "é٣F²"), (Parts{"é٣F"}));
  EXPECT_EQ(parts(R"(\p{Upper}\p{Lower}+)", "Ébé"), (Parts{"Ébé"}));
  EXPECT_EQ(parts(R"(\p{Punct}+)", "a.!+b"), (Parts{".!"}));
  EXPECT_EQ(parts(R"(\p{Word}+)", "a²-b"), (Parts{"a²", "b"}));
  EXPECT_EQ(parts(R"([\p{Word}]+)", "a²b"), (Parts{"a", "b"}));
  EXPECT_EQ(parts(R"(\p{ASCII}+)", "a\tñ"), (Parts{"a\t"}));
  EXPECT_EQ(parts(R"(\p{Assigned}+)", "a\u0378b"), (Parts{"a", "b"}));
  for (const char* form : {R"(\p{Blank}+)", "[[:blank:]]+"}) {
    EXPECT_EQ(parts(form, "bl a\t\u00a0\n"), (Parts{" ", "\t\u00a0"})) << form;
  }
  for (const char* form : {R"(\p{Graph}+)", "[[:graph:]]+"}) {
    EXPECT_EQ(parts(form, "a+ \u200d\x01é\u0378"), (Parts{"a+", "\u200d", "é"})) << form;
  }
  for (const char* form : {R"(\p{Print}+)", "[[:print:]]+"}) {
    EXPECT_EQ(parts(form, "a+ \u200d\x01é\n"), (Parts{"a+ \u200d", "é"})) << form;
  }
  for (const char* form : {R"(\p{Cntrl}+)", "[[:cntrl:]]+"}) {
    EXPECT_EQ(parts(form, "a\x01\u0085b"), (Parts{"\x01\u0085"})) << form;
  }
  EXPECT_EQ(parts("[[:ascii:]]+", "a:ñ"), (Parts{"a:"}));
  EXPECT_EQ(parts("[[:^blank:]]+", "a \nb"), (Parts{"a", "\nb"}));
}

TEST(Regex, a_plus_behind_an_interval_repeats_it) {
  EXPECT_EQ(parts(R"(\p{N}{1,3}+)", "1234567"), (Parts{"1234567"}));
  EXPECT_EQ(parts(R"((?:ab|c){2}+)", "abcabab"), (Parts{"abcabab"}));
  EXPECT_EQ(parts(R"([a-c]{2,}+c)", "aabc"), (Parts{"aabc"}));
  EXPECT_EQ(parts(R"(a{,2}b)", "aaab b"), (Parts{"aab", "b"}));
  EXPECT_EQ(parts(R"(a{2})", "aaaaa"), (Parts{"aa", "aa"}));
  EXPECT_EQ(parts(R"(a{x}+)", "a{x}}"), (Parts{"a{x}}"}));
}

TEST(Regex, scripts_are_without_extensions) {
  EXPECT_EQ(parts(R"(\p{Han}+)", "漢、字"), (Parts{"漢", "字"}));
  EXPECT_EQ(parts(R"(\p{han}+)", "漢、字"), (Parts{"漢", "字"}));
  EXPECT_EQ(parts(R"(\p{Bengali}+)", "ক।খ"), (Parts{"ক", "খ"}));
  EXPECT_EQ(parts(R"([^\p{Bengali}]+)", "ক।খ"), (Parts{"।"}));
}

TEST(Regex, categories_have_long_names) {
  EXPECT_EQ(parts(R"(\p{Letter}+)", "ab1é."), (Parts{"ab", "é"}));
  EXPECT_EQ(parts(R"(\p{Uppercase_Letter}+)", "aBÉc"), (Parts{"BÉ"}));
  EXPECT_EQ(parts(R"([\p{decimal number}\P{Other-Symbol}]+)", "1a☃2"), (Parts{"1a", "2"}));
  EXPECT_EQ(parts(R"(\p{^Punctuation}+)", "a!b"), (Parts{"a", "b"}));
  EXPECT_EQ(parts(R"(\p{Cased_Letter}+)", "aBǅ漢"), (Parts{"aBǅ"}));
}

TEST(Regex, knows_newer_characters_and_not_the_mongolian_separator_as_space) {
  EXPECT_EQ(parts(R"(\p{L}+)", "a\U00031350b"), (Parts{"a\U00031350b"}));  // Unicode 15
  EXPECT_EQ(parts(R"(\p{Nd}+)", "1\U00010D40"), (Parts{"1\U00010D40"}));   // Unicode 16
  EXPECT_EQ(parts(R"([^\s\p{L}]+)", "a\u180E "), (Parts{"\u180E"}));
}

TEST(Regex, long_s_and_kelvin_fold) {
  EXPECT_EQ(parts("(?i:'s|'k)", "'S'ſ'\u212A"), (Parts{"'S", "'ſ", "'\u212A"}));
}

TEST(Regex, empty_matches_are_not_taken_behind_a_match) {
  EXPECT_EQ(parts("z*", "zza"), (Parts{"zz", ""}));
  EXPECT_EQ(parts("z*", ""), (Parts{""}));
}

TEST(Regex, literals_are_not_patterns) {
  EXPECT_EQ(Regex::literal("a.").replace("a.abba.", "\\0"), "\\0abb\\0");
  EXPECT_EQ(Regex::literal("aa").find_all("aaaaa").size(), 2U);
}

TEST(Regex, a_long_run_needs_more_stack_than_the_default) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(Regex::compile("(?:[a[b]]|c)+", "p").find_all(text).size(), 1U);
}

TEST(Regex, a_search_that_would_not_end_is_an_error_that_names_its_place) {
  const Regex regex = Regex::compile("(?:a|aa)+[cd]", "adapter_config.json: target_modules");
  const std::string text(100, 'a');
  try {
    (void)regex.find_all(text);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_EQ(std::string(error.what())
                  .find("adapter_config.json: target_modules: the pattern "
                        "fails on a text of 100 bytes: "),
              0U)
        << error.what();
  }
}

TEST(Regex, errors_name_place_and_pattern) {
  for (const char* bad : {"[a", "(", "\\p{L", "\\p{Nonsense}", "[[a]", "a**+?{"}) {
    try {
      (void)Regex::compile(bad, "tokenizer.json: pattern");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_EQ(std::string(error.what()).find("tokenizer.json: pattern"), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace moesaic
