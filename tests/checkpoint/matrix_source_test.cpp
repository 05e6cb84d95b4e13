#include "src/checkpoint/matrix_source.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/checkpoint/safetensors_writer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::TemporaryDirectory;

/// A checkpoint directory with the one tensor "w".
template <typename T>
Checkpoint checkpoint_with(const TemporaryDirectory& directory, DType dtype,
                           const std::vector<std::int64_t>& shape, const std::vector<T>& elements) {
  test::write_text(directory.path_of("config.json"), "{}");
  SafetensorsWriter writer(directory.path_of("model.safetensors"), {{"w", dtype, shape}});
  writer.write("w", 0, std::as_bytes(std::span(elements)));
  writer.finish();
  return Checkpoint::open(directory.path());
}

std::vector<float> row_as_float(const MatrixSource& source, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(source.cols()));
  source.read_rows(row, 1, std::span(out));
  return out;
}

std::vector<std::uint16_t> row_as_bf16(const MatrixSource& source, std::int64_t row) {
  std::vector<BFloat16> out(static_cast<std::size_t>(source.cols()));
  source.read_rows(row, 1, std::span(out));
  std::vector<std::uint16_t> bits;
  for (const BFloat16 value : out) bits.push_back(value.bits);
  return bits;
}

TEST(MatrixSource, converts_bf16) {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = checkpoint_with<std::uint16_t>(
      directory, DType::bf16, {2, 3}, {0x3f80, 0x4000, 0xc040, 0x0001, 0x7f80, 0x8000});
  const MatrixSource source(checkpoint, {"w", {2, 3}, 0, 2, 3});
  EXPECT_EQ(row_as_float(source, 0), (std::vector<float>{1, 2, -3}));
  EXPECT_EQ(row_as_bf16(source, 1), (std::vector<std::uint16_t>{0x0001, 0x7f80, 0x8000}));
  std::vector<float> rows(6);
  source.read_rows(0, 2, std::span(rows));
  EXPECT_EQ(rows[2], -3);
  EXPECT_EQ(rows[4], std::numeric_limits<float>::infinity());
}

TEST(MatrixSource, converts_f32_rounding_to_even) {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = checkpoint_with<float>(directory, DType::f32, {1, 4},
                                                       {1.00390625F, 1.01171875F, -0.3F, 3.4e38F});
  const MatrixSource source(checkpoint, {"w", {1, 4}, 0, 1, 4});
  EXPECT_EQ(row_as_float(source, 0),
            (std::vector<float>{1.00390625F, 1.01171875F, -0.3F, 3.4e38F}));
  EXPECT_EQ(row_as_bf16(source, 0), (std::vector<std::uint16_t>{0x3f80, 0x3f82, 0xbe9a, 0x7f80}));
}

TEST(MatrixSource, converts_every_half_exactly) {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const Checkpoint checkpoint = checkpoint_with(directory, DType::f16, {1, 65536}, halves);
  const MatrixSource source(checkpoint, {"w", {1, 65536}, 0, 1, 65536});
  const auto floats = row_as_float(source, 0);
  const auto bf16 = row_as_bf16(source, 0);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    // sign * mantissa * 2^exponent by the definition of IEEE 754 binary16
    const int exponent = static_cast<int>(i >> 10 & 31);
    const int mantissa = static_cast<int>(i & 1023);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(floats[i]), mantissa != 0);
      EXPECT_EQ(std::isinf(floats[i]), mantissa == 0);
    } else {
      const float magnitude = exponent == 0
                                  ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
      EXPECT_EQ(floats[i], (i & 0x8000) != 0 ? -magnitude : magnitude) << i;
    }
    EXPECT_EQ(std::signbit(floats[i]), (i & 0x8000) != 0);
    EXPECT_EQ(bf16[i], to_bfloat16(floats[i]).bits) << i;
  }
}

TEST(MatrixSource, reads_a_slice_of_a_fused_tensor) {
  const TemporaryDirectory directory;
  std::vector<float> elements(2 * 6 * 4);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i);
  const Checkpoint checkpoint = checkpoint_with(directory, DType::f32, {2, 6, 4}, elements);
  const MatrixSource up(checkpoint, {"w", {2, 6, 4}, 9, 3, 4});  // expert 1, second half
  EXPECT_EQ(up.rows(), 3);
  EXPECT_EQ(up.cols(), 4);
  EXPECT_EQ(row_as_float(up, 0), (std::vector<float>{36, 37, 38, 39}));
  EXPECT_EQ(row_as_float(up, 2), (std::vector<float>{44, 45, 46, 47}));
  std::size_t bytes = 0;
  up.for_each_bytes(0, 3, [&](std::span<const std::byte> touched) { bytes += touched.size(); });
  EXPECT_EQ(bytes, 48U);
  EXPECT_EQ(up.layout(), Layout{Format::f32});
  EXPECT_FALSE(up.is_quantized());
}

std::vector<float> counting(std::size_t count) {
  std::vector<float> elements(count);
  for (std::size_t i = 0; i < count; ++i) elements[i] = static_cast<float>(i);
  return elements;
}

std::size_t touched_bytes(const MatrixSource& source, std::int64_t first, std::int64_t count) {
  std::size_t bytes = 0;
  source.for_each_bytes(first, count,
                        [&](std::span<const std::byte> touched) { bytes += touched.size(); });
  return bytes;
}

TEST(MatrixSource, reads_a_matrix_that_lies_across) {
  const TemporaryDirectory directory;
  const std::vector<std::int64_t> shape = {2, 3, 8};  // of each of two experts [3, 8]
  const auto sources = [&](const Checkpoint& checkpoint) {
    TensorSlice slice{.tensor = "w", .shape = shape, .first_row = 3, .rows = 4, .cols = 3};
    slice.row_step = 2;
    slice.is_transposed = true;
    const MatrixSource gate(checkpoint, slice);
    slice.first_column = 1;
    return std::array{gate, MatrixSource(checkpoint, slice)};
  };
  const Checkpoint floats = checkpoint_with(directory, DType::f32, shape, counting(48));
  const auto [gate, up] = sources(floats);
  EXPECT_EQ(row_as_float(gate, 0), (std::vector<float>{24, 32, 40}));
  EXPECT_EQ(row_as_float(gate, 3), (std::vector<float>{30, 38, 46}));
  EXPECT_EQ(row_as_float(up, 0), (std::vector<float>{25, 33, 41}));
  std::vector<float> rows(6);
  up.read_rows(2, 2, std::span(rows));
  EXPECT_EQ(rows, (std::vector<float>{29, 37, 45, 31, 39, 47})) << "the last one of the tensor";
  EXPECT_EQ(touched_bytes(gate, 0, 3), 0U) << "all of it comes with the last row";
  EXPECT_EQ(touched_bytes(gate, 3, 1), 4U * 23);
  EXPECT_EQ(gate.layout(), Layout{Format::f32});

  const TemporaryDirectory other;
  std::vector<std::uint16_t> halves(48);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const Checkpoint bf16 = checkpoint_with(other, DType::bf16, shape, halves);
  EXPECT_EQ(row_as_bf16(sources(bf16)[1], 3), (std::vector<std::uint16_t>{31, 39, 47}));
}

TEST(MatrixSource, reads_elements_that_take_turns) {
  const TemporaryDirectory directory;
  const Checkpoint floats = checkpoint_with(directory, DType::f32, {2, 6}, counting(12));
  const MatrixSource odd(floats, {"w", {2, 6}, 7, 3, 1, 2});  // of the second row
  std::vector<float> elements(3);
  odd.read_rows(0, 3, std::span(elements));
  EXPECT_EQ(elements, (std::vector<float>{7, 9, 11}));
  EXPECT_EQ(touched_bytes(odd, 0, 3), 4U * 5);
}

TEST(MatrixSource, only_plain_numbers_lie_across) {
  const TemporaryDirectory directory;
  const Checkpoint bytes =
      checkpoint_with<std::int8_t>(directory, DType::f8_e4m3, {1, 2, 2}, {1, 2, 3, 4});
  TensorSlice slice{.tensor = "w", .shape = {1, 2, 2}, .rows = 2, .cols = 2};
  slice.is_transposed = true;
  EXPECT_EQ(
      error_message([&] { MatrixSource source(bytes, slice); }),
      directory.path_of("model.safetensors") + ": tensor \"w\" is F8_E4M3, not F32, BF16 or F16");
}

TEST(MatrixSource, adds_what_norms_leave_out) {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint =
      checkpoint_with<std::uint16_t>(directory, DType::bf16, {3}, {0x3f80, 0xbf80, 0x3b80});
  TensorSlice slice{"w", {3}, 0, 1, 3};
  slice.offset = 1;
  EXPECT_EQ(row_as_float(MatrixSource(checkpoint, slice), 0),
            (std::vector<float>{2, 0, 1.00390625F}));
}

TEST(MatrixSource, reads_at_any_alignment) {
  const TemporaryDirectory directory;
  test::write_text(directory.path_of("config.json"), "{}");
  // The header has an odd length, so the floats begin at an odd address.
  std::string header = R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  const std::array<float, 2> values = {0.75F, -5.0F};
  std::string data(8, '\0');
  std::memcpy(data.data(), values.data(), 8);
  test::write_text(directory.path_of("model.safetensors"), test::safetensors_text(header, data));
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  const MatrixSource source(checkpoint, {"w", {1, 2}, 0, 1, 2});
  EXPECT_EQ(row_as_float(source, 0), (std::vector<float>{0.75F, -5.0F}));
  EXPECT_EQ(row_as_bf16(source, 0), (std::vector<std::uint16_t>{0x3f40, 0xc0a0}));
}

TEST(MatrixSource, a_tensor_of_other_numbers_is_refused_and_not_read_as_bf16) {
  const std::vector<std::byte> bytes(8 * 6);
  for (const DType dtype : {DType::f64, DType::i32, DType::i8, DType::f8_e4m3, DType::boolean}) {
    const auto size = static_cast<std::size_t>(6 * dtype_bytes(dtype));
    const TensorView tensor{"w", dtype, {2, 3}, std::span(bytes).first(size), "file"};
    EXPECT_EQ(error_message([&] { (void)MatrixSource(tensor); }, ErrorKind::file),
              "file: tensor \"w\" is " + std::string(dtype_name(dtype)) + ", not F32, BF16 or F16");
  }
}

TEST(MatrixSource, names_tensor_shape_and_dtype_that_do_not_fit) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("model.safetensors");
  const auto message = [&](const Checkpoint& checkpoint, const TensorSlice& slice) {
    return error_message([&] { MatrixSource source(checkpoint, slice); });
  };
  const Checkpoint floats =
      checkpoint_with<float>(directory, DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(message(floats, {"v", {2, 3}, 0, 2, 3}),
            directory.path() + ": tensor \"v\" is missing");
  EXPECT_EQ(message(floats, {"w", {3, 2}, 0, 3, 2}),
            file + ": tensor \"w\" has shape [2, 3], config.json asks for [3, 2]");
  EXPECT_EQ(message(floats, {"w", {6}, 0, 1, 6}),
            file + ": tensor \"w\" has shape [2, 3], config.json asks for [6]");
  const Checkpoint integers =
      checkpoint_with<std::int32_t>(directory, DType::i32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(message(integers, {"w", {2, 3}, 0, 2, 3}),
            file +
                ": tensor \"w\", I32 [2, 3], is of a type that is not read for weights: BF16, "
                "F16 and F32 are, and F8_E4M3, I8 and U8 with scales");
}

}  // namespace
}  // namespace moesaic
