#include <gtest/gtest.h>

#include "launch/options/config_file.h"
#include "launch/options/option_help.h"
#include "tests/launch/parsed_command.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::parse;

Command parse_file(const std::string& text) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, text);
  return parse({"generate", "--config", file});
}

/// What is said of a file, from "line" on.
std::string file_error(const std::string& text) {
  try {
    (void)parse_file(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    const std::string message = error.what();
    return message.substr(message.find("line"));
  }
  return "no error";
}

TEST(ConfigFile, ValuesAreTakenAsTheyAre) {
  const auto prompt = [](const std::string& value) {
    return *parse_file("prompt = " + value + "\n").options.prompt;
  };
  EXPECT_EQ(prompt("C# is a language"), "C# is a language");
  EXPECT_EQ(prompt("C #is a comment"), "C");
  EXPECT_EQ(prompt("\"C # is # a language\"  # and this a comment"), "C # is # a language");
  EXPECT_EQ(prompt("\"a\\nb \\\" c \""), "a\nb \" c ");
  EXPECT_EQ(prompt("it is \"quoted\""), "it is \"quoted\"");
  EXPECT_EQ(parse_file("\xef\xbb\xbfpredict = 3\r\n").options.predict, 3);
}

TEST(ConfigFile, CommasInsideQuotesSeparateNothing) {
  using Values = std::vector<std::string>;
  const auto list = [](const std::string& text) { return read_list(text, "a line"); };
  EXPECT_EQ(list("1, 2 ,3  # three"), (Values{"1", "2", "3"}));
  EXPECT_EQ(list("\"a,b\", c,\"d # \\\"e\\\"\" # a comment"), (Values{"a,b", "c", "d # \"e\""}));
  EXPECT_EQ(list("it is \"quoted\", C#"), (Values{"it is \"quoted\"", "C#"}));
  EXPECT_EQ(list("\"\",,\"a\","), (Values{"", "", "a", ""}));
  for (const auto& [text, told] : {std::pair("\"a\" b, c", "\"b, c\" follows the quotes"),
                                   {"a, \"b", "the quotes do not end"}}) {
    const std::string error =
        test::error_message([&, &text = text] { (void)list(text); }, ErrorKind::usage);
    EXPECT_EQ(error, std::string("a line: ") + told);
  }
}

TEST(ConfigFile, LinesThatAreWrongAreNamed) {
  EXPECT_EQ(file_error("predict = 3\n\ntop-k\n"), "line 3: \"top-k\" is not name = value");
  EXPECT_EQ(file_error("predict = 3\ntop-k = 2\ntop_k = 3\n"),
            "line 3: top-k stands in line 2 already");
  EXPECT_EQ(file_error("tpo-k = 3\n"), "line 1: unknown option \"tpo-k\"; did you mean top-k?");
  EXPECT_EQ(file_error("n = 3\n"), "line 1: unknown option \"n\"; it is predict here");
  EXPECT_EQ(file_error("prompt = \"a\n"), "line 1: the quotes do not end");
  EXPECT_EQ(file_error("prompt = \"a\" b\n"), "line 1: \"b\" follows the quotes");
  EXPECT_EQ(file_error("config = x\n"),
            "line 1: config cannot stand in a file, only as the flag --config");
  EXPECT_EQ(file_error("predict = x\n"), "line 1: predict: \"x\" is not a whole number");
  EXPECT_EQ(file_error(std::string("predict = 3\0\n", 13)), "line 1: a NUL byte is no text");
  EXPECT_NE(test::error_message([] {
              (void)parse({"generate", "--config", "."});
            }).find(".: not a regular file"),
            std::string::npos);
}

TEST(ConfigFile, ThereIsOneForACommand) {
  const test::TemporaryDirectory directory;
  const std::string first = directory.path_of("a.ini");
  const std::string second = directory.path_of("b.ini");
  test::write_text(first, "predict = 2\n");
  test::write_text(second, "temp = 0\n");
  EXPECT_EQ(test::error_message(
                [&] {
                  (void)parse({"generate", "--config", first, "--config=" + second});
                },
                ErrorKind::usage),
            "\"" + first + "\" and \"" + second + "\": there can be one --config");
}

TEST(ConfigFile, QuotesAreThoseOfJson) {
  const std::string one_backslash = R"(trace-dir = ".*\.x")";
  EXPECT_TRUE(file_error(one_backslash).starts_with("line 1: not valid JSON: ")) << one_backslash;
  EXPECT_TRUE(file_error(one_backslash)
                  .ends_with(R"(; in quotes stands a text of JSON, \\ for each backslash of it)"))
      << file_error(one_backslash);
  EXPECT_EQ(*parse_file(R"(trace-dir = ".*\\.x")").options.trace_dir, R"(.*\.x)");
  EXPECT_EQ(*parse_file(R"(trace-dir = .*\.x)").options.trace_dir, R"(.*\.x)");
  EXPECT_EQ(*parse_file("prompt = Tis 'so'").options.prompt, "Tis 'so'");
  const std::string refused =
      " begins with a single quote, which quotes nothing here: write double ones, or none";
  EXPECT_EQ(file_error("prompt = 'a b'  # c"), "line 1: \"'a b'\"" + refused);
  for (const char* text : {"1, 'a,b'", "'a'"}) {
    EXPECT_NE(test::error_message([&] { (void)read_list(text, "a line"); }, ErrorKind::usage)
                  .find(refused),
              std::string::npos)
        << text;
  }
}

TEST(ConfigFile, WhateverIsShownReadsBack) {
  const std::vector<std::string> texts = {"a # b",       " a ", "\"quoted\"", "two\nlines",
                                          "tab\tand \\", "#",   "plain text", "'tis"};
  for (const std::string& text : texts) {
    const Command first = parse({"generate", "-m", text, "-p", text});
    const Command second = parse_file(config_text(first));
    EXPECT_EQ(second.options.prompt, text);
    EXPECT_EQ(second.options.model, text);
  }
  const std::string path(60, 'x');
  EXPECT_NE(config_text(parse({"generate", "-m", path})).find(path + " # command line"),
            std::string::npos);
}

TEST(ConfigFile, UnknownKeyIsNamedWithFile) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, "tepm = 1\n");
  EXPECT_EQ(test::error_message(
                [&] {
                  (void)parse({"generate", "--config", file});
                },
                ErrorKind::usage),
            file + " line 1: unknown option \"tepm\"; did you mean temp?");
  EXPECT_NE(test::error_message([&] {
              (void)parse({"generate", "--config", file + "x"});
            }).find(file),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
