#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace moesaic {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Error, OfKindInternalNamesItsLine) {
  const int line = __LINE__;
  const auto broken = [] { fail(ErrorKind::internal, "{} is not {}", 1, "two"); };
  const auto too_wide = [] { (void)narrow<std::int8_t>(300); };
  const auto at = [&](int lines_on) {
    return "tests/base/error_test.cpp:" + std::to_string(line + lines_on) + ": ";
  };
  EXPECT_TRUE(message_of(broken).ends_with(at(1) + "1 is not two")) << message_of(broken);
  EXPECT_TRUE(message_of(too_wide).ends_with(at(2) + "value 300 does not fit its narrower type"))
      << message_of(too_wide);
}

TEST(Error, OfOtherKindsIsForUsers) {
  EXPECT_EQ(message_of([] { fail(ErrorKind::file, "{} is missing", "x"); }), "x is missing");
  EXPECT_EQ(message_of([] { require(false, ErrorKind::usage, "no"); }), "no");
  EXPECT_EQ(message_of([] { require(true, ErrorKind::internal, "no"); }), "no error");
}

TEST(Error, IsOneLineWhateverItQuotes) {
  const std::string quoted("a\0b\nc\r\td\x1b[31m\x7f", 14);
  EXPECT_EQ(message_of([&] { fail(ErrorKind::file, "no {}, é", quoted); }),
            "no a\\0b\\nc\\r\\td\\x1b[31m\\x7f, é");
  const Error again(ErrorKind::file, message_of([&] { fail(ErrorKind::file, "{}", quoted); }));
  EXPECT_EQ(std::string(again.what()), "a\\0b\\nc\\r\\td\\x1b[31m\\x7f") << "on another rank";
}

TEST(Error, MayHaveLinesOfItsOwn) {
  EXPECT_EQ(message_of([] { fail(ErrorKind::peer, "all wait\n  rank {}\nend\n", 1); }),
            "all wait\n  rank 1\\nend\\n");
}

TEST(Error, EveryExceptionIsOne) {
  const auto as_error = [](const auto& exception) {
    try {
      throw exception;
    } catch (...) {
      return current_error();
    }
  };
  EXPECT_EQ(as_error(Error(ErrorKind::file, "x is missing")).kind(), ErrorKind::file);
  EXPECT_EQ(as_error(std::bad_alloc()).kind(), ErrorKind::resource);
  const std::system_error full(ENOSPC, std::generic_category(), "x");
  EXPECT_EQ(as_error(full).kind(), ErrorKind::resource);
  EXPECT_STREQ(as_error(full).what(), "x: No space left on device");
  EXPECT_EQ(as_error(std::out_of_range("x")).kind(), ErrorKind::internal);
  EXPECT_STREQ(as_error(std::out_of_range("x")).what(), "unexpected: x");
  EXPECT_EQ(as_error(3).kind(), ErrorKind::internal);
}

TEST(Narrow, KeepsValuesThatFit) {
  EXPECT_EQ(narrow<std::int8_t>(-128), -128);
  EXPECT_EQ(narrow<std::uint64_t>(std::int64_t{5}), 5U);
  EXPECT_THROW((void)narrow<std::uint32_t>(-1), Error);
  EXPECT_THROW((void)narrow<std::int32_t>(std::uint64_t{1} << 40), Error);
}

}  // namespace
}  // namespace moesaic
