#include "src/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::safetensors_text;
using test::TemporaryDirectory;

std::vector<TensorView> parse_tensors(const std::string& text) {
  return parse_safetensors(std::as_bytes(std::span(text)), "f.safetensors");
}

std::string parse_error(const std::string& text) {
  return error_message([&] { (void)parse_tensors(text); });
}

std::string header_error(const std::string& header, std::size_t data_bytes) {
  return parse_error(safetensors_text(header, std::string(data_bytes, 'd')));
}

/// Two tensors, 8 and 6 bytes; the parts of "a" can be replaced.
std::string two_tensors(const std::string& shape = "[2]", const std::string& offsets = "[0,8]",
                        const std::string& dtype = "\"F32\"") {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         R"(},"b":{"dtype":"BF16","shape":[3,1],"data_offsets":[8,14]}})";
}

TEST(Safetensors, reads_dtype_shape_and_bytes) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("t.safetensors");
  // In another order than their data, with metadata, a scalar, an empty tensor and padding.
  test::write_text(
      path, safetensors_text(
                R"({"__metadata__":{"format":"pt"},"z":{"dtype":"I64","shape":[],"data_offsets":)"
                R"([6,14]},"none":{"dtype":"F16","shape":[0,7],"data_offsets":[6,6]},"a":{"dtype":)"
                R"("U8","shape":[2,3],"data_offsets":[0,6]}}   )",
                "abcdef01234567"));
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 3U);
  const TensorView* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::u8);
  EXPECT_EQ(format_shape(a->shape), "[2, 3]");
  EXPECT_EQ(a->file, path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(a->bytes.data()), a->bytes.size()), "abcdef");
  EXPECT_EQ(file.find("none")->bytes.size(), 0U);
  EXPECT_EQ(file.find("z")->bytes.size(), 8U);
  EXPECT_TRUE(file.find("z")->shape.empty());
  EXPECT_EQ(file.find("missing"), nullptr);
}

TEST(Safetensors, a_file_without_tensors_is_valid) {
  EXPECT_TRUE(parse_tensors(safetensors_text("{}", "")).empty());
}

// 0x280 and 0x8b1f are how pickled files and gzip archives begin.
TEST(Safetensors, a_header_may_have_any_length) {
  for (const std::size_t length : {std::size_t{0x280}, std::size_t{0x8b1f}}) {
    std::string header = "{}";
    header.resize(length, ' ');
    EXPECT_TRUE(parse_tensors(safetensors_text(header, "")).empty()) << length;
  }
}

TEST(Safetensors, refuses_a_file_without_a_sound_header) {
  EXPECT_EQ(parse_error(""),
            "f.safetensors: no safetensors file: 0 bytes, the header's length alone has 8");
  EXPECT_EQ(parse_error("1234567"),
            "f.safetensors: no safetensors file: 7 bytes, the header's length alone has 8");
  EXPECT_EQ(parse_error(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
            "f.safetensors: cut short: 10 bytes, the header alone ends at byte 24");
  EXPECT_EQ(parse_error(std::string(8, '\xff') + "{}"),
            "f.safetensors: no safetensors file, or a damaged one: header of 18446744073709551615 "
            "bytes, at most 100000000 are accepted");
  EXPECT_NE(header_error("{\"a\":", 0).find("f.safetensors: not valid JSON"), std::string::npos);
  EXPECT_NE(header_error("\xff\xfe{}", 0).find("f.safetensors: not valid JSON"), std::string::npos);
  EXPECT_EQ(header_error("[]", 0), "f.safetensors: the header is no JSON object");
  EXPECT_EQ(header_error(std::string(100'000, '['), 0),
            "f.safetensors: nested deeper than 200 levels");
}

TEST(Safetensors, refuses_entries_of_the_wrong_kind) {
  EXPECT_EQ(header_error(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4),
            "f.safetensors: a: field \"dtype\" is missing");
  EXPECT_EQ(header_error(two_tensors("[2]", "[0,8]", "\"F33\""), 14),
            "f.safetensors: tensor \"a\" has unknown dtype \"F33\"");
  EXPECT_EQ(header_error(two_tensors("[2]", "[0,8]", "4"), 14),
            "f.safetensors: a.dtype: expected a string, found number 4");
  EXPECT_EQ(header_error(R"({"a":7})", 0), "f.safetensors: a: expected an object, found number 7");
  EXPECT_EQ(header_error(two_tensors("2"), 14),
            "f.safetensors: a.shape: expected an array or object, found number 2");
  EXPECT_EQ(header_error(R"({"__metadata__":{"x":3}})", 0),
            "f.safetensors: __metadata__.x: expected a string, found number 3");
  EXPECT_EQ(header_error(R"({"__metadata__":["x"]})", 0),
            "f.safetensors: __metadata__: expected an object of strings");
}

TEST(Safetensors, refuses_dimensions_that_are_no_sizes) {
  EXPECT_EQ(header_error(two_tensors("[-2]"), 14),
            "f.safetensors: a.shape[0]: expected an integer of at least 0, found -2");
  EXPECT_EQ(header_error(two_tensors("[1,2.5]"), 14),
            "f.safetensors: a.shape[1]: expected an integer of at least 0, found 2.5");
  EXPECT_EQ(header_error(two_tensors("[\"2\"]"), 14),
            "f.safetensors: a.shape[0]: expected an integer of at least 0, found no number");
  EXPECT_EQ(header_error(two_tensors("[18446744073709551615]"), 14),
            "f.safetensors: a.shape[0]: expected an integer below 2^63, found number "
            "18446744073709551615");
  EXPECT_EQ(header_error(two_tensors("[4294967296,4294967296]"), 14),
            "f.safetensors: tensor \"a\" of shape [4294967296, 4294967296] is absurdly large");
  EXPECT_EQ(header_error(two_tensors("[9223372036854775807]"), 14),
            "f.safetensors: tensor \"a\" of shape [9223372036854775807] is absurdly large");
}

TEST(Safetensors, refuses_offsets_that_do_not_fit) {
  EXPECT_EQ(header_error(two_tensors("[2]", "[0]"), 14),
            "f.safetensors: a.data_offsets: expected [begin, end], found 1 numbers");
  EXPECT_EQ(header_error(two_tensors("[2]", "[0,-8]"), 14),
            "f.safetensors: a.data_offsets[1]: expected an integer of at least 0, found -8");
  EXPECT_EQ(header_error(two_tensors("[2]", "[8,0]"), 14),
            "f.safetensors: tensor \"a\" begins at byte 8, behind its end at 0");
  EXPECT_EQ(
      header_error(two_tensors("[2]", "[0,7]"), 14),
      "f.safetensors: tensor \"a\", F32 [2], has 8 bytes, but its data_offsets [0, 7] span 7");
  EXPECT_EQ(header_error(two_tensors("[2]", "[4,12]"), 14),
            "f.safetensors: bytes 0 to 4 of the data, before tensor \"a\", belong to no tensor");
  EXPECT_EQ(
      header_error(two_tensors("[3]", "[0,12]"), 14),
      "f.safetensors: tensor \"b\" begins at byte 8 of the data, inside the tensor before it, "
      "which ends at 12");
  EXPECT_EQ(header_error(two_tensors("[1]", "[0,4]"), 14),
            "f.safetensors: bytes 4 to 8 of the data, before tensor \"b\", belong to no tensor");
  EXPECT_EQ(header_error(two_tensors("[2]", "[9223372036854775800,9223372036854775807]"), 14),
            "f.safetensors: tensor \"a\", F32 [2], has 8 bytes, but its data_offsets "
            "[9223372036854775800, 9223372036854775807] span 7");
}

TEST(Safetensors, refuses_duplicate_names) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(header_error("{" + entry + "," + entry + "}", 1),
            "f.safetensors: key \"a\" stands twice in one object");
}

TEST(Safetensors, refuses_a_file_of_another_length_than_its_tensors) {
  const std::string header = two_tensors();
  const std::size_t whole = 8 + header.size() + 14;
  EXPECT_EQ(header_error(header, 13), "f.safetensors: cut short: " + std::to_string(whole - 1) +
                                          " of " + std::to_string(whole) + " bytes");
  EXPECT_EQ(header_error(header, 16),
            "f.safetensors: 2 bytes at the end belong to no tensor: " + std::to_string(whole) +
                " bytes were expected, " + std::to_string(whole + 2) + " are there");
}

}  // namespace
}  // namespace moesaic
