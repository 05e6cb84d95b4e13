#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace moesaic {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Checksum, IsThatOfXxhsum) {  // xxhsum -H3
  EXPECT_EQ(checksum_text(checksum(std::string_view())), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum(std::string_view("a"))), "e6c632b61e964e1f");
  EXPECT_EQ(checksum_text(checksum(std::string_view("abc"))), "78af5f94892f3950");
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7 % 251);
  for (const std::size_t step : {1U, 64U, 1000U, 5000U}) {
    Checksum sum;
    for (std::size_t at = 0; at < text.size(); at += step) {
      sum.add(bytes_of(std::string_view(text).substr(at, step)));
    }
    EXPECT_EQ(sum.value(), checksum(std::string_view(text))) << step;
  }
}

TEST(Checksum, TextReadsBack) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_EQ(checksum_from_text(checksum_text(value)), value);
  }
  for (const char* bad : {"", "0", "00000000000000000", "000000000000000g", "-000000000000001"}) {
    EXPECT_EQ(checksum_from_text(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace moesaic
