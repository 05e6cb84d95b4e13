#include "src/model/matrix_packer.h"

#include <gtest/gtest.h>

#include <random>

#include "src/checkpoint/safetensors_writer.h"
#include "tests/support/quantized_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

constexpr std::int64_t kDepth = 160;

/// A bf16 checkpoint with the matrix "w.weight" [rows, kDepth].
void write_matrix(const std::string& directory, std::int64_t rows) {
  test::write_text(directory + "/config.json", "{}");
  std::mt19937 random(5);
  std::vector<std::uint16_t> values;
  for (std::int64_t i = 0; i < rows * kDepth; ++i) {
    // Rows of different magnitudes, so that scales differ.
    const float scale = static_cast<float>(1 + i / kDepth % 50);
    values.push_back(
        to_bfloat16(scale * (static_cast<float>(random()) / 4294967296.0F - 0.5F)).bits);
  }
  SafetensorsWriter writer(directory + "/model.safetensors",
                           {{"w.weight", DType::bf16, {rows, kDepth}}});
  writer.write("w.weight", 0, std::as_bytes(std::span(values)));
  writer.finish();
}

MatrixSource rows_of(const Checkpoint& checkpoint, std::int64_t all, std::int64_t first,
                     std::int64_t count) {
  return {checkpoint, TensorSlice{.tensor = "w.weight",
                                  .shape = {all, kDepth},
                                  .first_row = first,
                                  .rows = count,
                                  .cols = kDepth}};
}

struct Packed {
  std::vector<std::byte> bytes;
  float scale = 1;
};

/// Packs `together` panels at a time, each time measured by itself.
Packed pack_in_pieces(const Packing& packing, const std::vector<MatrixSource>& parts,
                      std::int64_t together) {
  PackScratch scratch;
  Packed packed;
  const std::int64_t stride = panel_bytes(packing.layout, kDepth);
  const std::int64_t panels = MatrixPacker(packing, parts).num_panels();
  packed.bytes.resize(static_cast<std::size_t>(panels * stride));
  for (std::int64_t first = 0; first < panels; first += together) {
    const std::int64_t end = std::min(panels, first + together);
    MatrixPacker packer(packing, parts);
    if (packer.must_measure()) packer.measure(first, end, scratch);
    packer.pack(first, end, packed.bytes.data() + first * stride, scratch);
    packed.scale = packer.scale();
  }
  return packed;
}

Packed pack_whole(const Packing& packing, const std::vector<MatrixSource>& parts) {
  return pack_in_pieces(packing, parts, std::int64_t{1} << 40);
}

std::vector<Layout> quantized_layouts() {
  return {{Format::int8},
          {Format::int4},
          {Format::int4_group, 32},
          {Format::int4_group, 64},
          {Format::int4_group, 128},
          {Format::fp8_block, 128},
          {Format::fp8_block, 32},
          {Format::fp8_channel},
          {Format::nvfp4},
          {Format::mxfp4},
          {Format::mxfp8}};
}

TEST(MatrixPacker, PiecesMakeTheSameBytesAsTheWhole) {
  const test::TemporaryDirectory directory;
  constexpr std::int64_t kRows = 300;  // the last panel and the last block are not full
  write_matrix(directory.path(), kRows);
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  const std::vector<MatrixSource> parts = {rows_of(checkpoint, kRows, 0, kRows)};
  std::vector<Layout> layouts = quantized_layouts();
  layouts.insert(layouts.end(), {{Format::bf16}, {Format::f32}});
  for (const Layout& layout : layouts) {
    const MatrixPacker packer({layout}, parts);
    EXPECT_EQ(packer.rows(), kRows);
    EXPECT_EQ(packer.must_measure(), MatrixScales::needed(layout.format));
    const Packed whole = pack_whole({layout}, parts);
    const Packed pieces = pack_in_pieces({layout}, parts, packer.panels_together());
    EXPECT_EQ(pieces.bytes, whole.bytes) << format_name(layout.format) << layout.group;
    EXPECT_EQ(pieces.scale, whole.scale) << format_name(layout.format);
  }
}

TEST(MatrixPacker, StackedPartsMakeTheSameBytesAsOneMatrix) {
  const test::TemporaryDirectory directory;
  constexpr std::int64_t kRows = 90;
  write_matrix(directory.path(), kRows);
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  const std::vector<MatrixSource> one = {rows_of(checkpoint, kRows, 0, kRows)};
  const std::vector<MatrixSource> parts = {rows_of(checkpoint, kRows, 0, 5),
                                           rows_of(checkpoint, kRows, 5, 40),
                                           rows_of(checkpoint, kRows, 45, 45)};
  for (const Layout& layout : {Layout{Format::bf16}, Layout{Format::f32}, Layout{Format::nvfp4},
                               Layout{Format::fp8_block, 32}, Layout{Format::int8}}) {
    EXPECT_EQ(pack_whole({layout}, parts).bytes, pack_whole({layout}, one).bytes)
        << format_name(layout.format);
  }
}

TEST(MatrixPacker, CodesOfAQuantisedCheckpointAreTakenAsTheyAre) {
  for (const Layout& layout :
       {Layout{Format::int8}, Layout{Format::fp8_channel}, Layout{Format::fp8_block, 32},
        Layout{Format::nvfp4}, Layout{Format::mxfp4}, Layout{Format::mxfp8}}) {
    const test::TemporaryDirectory directory;
    constexpr std::int64_t kRows = 64;
    write_matrix(directory.path(), kRows);
    const std::string quantized = directory.path_of("quantized");
    quantize_checkpoint(
        directory.path(), layout, [](std::string_view) { return true; }, quantized);
    const Checkpoint plain = Checkpoint::open(directory.path());
    const Checkpoint codes = Checkpoint::open(quantized);
    const std::vector<MatrixSource> values = {rows_of(plain, kRows, 0, kRows)};
    const std::vector<MatrixSource> whole = {rows_of(codes, kRows, 0, kRows)};
    const Packing kept{.layout = layout, .keeps_codes = true};
    ASSERT_TRUE(whole[0].layout() == layout) << format_name(layout.format);
    EXPECT_FALSE(MatrixPacker(kept, whole).must_measure());
    const Packed expected = pack_whole({layout}, values);
    EXPECT_EQ(pack_whole(kept, whole).bytes, expected.bytes) << format_name(layout.format);
    EXPECT_EQ(pack_whole(kept, whole).scale, expected.scale) << format_name(layout.format);
    const std::vector<MatrixSource> parts = {rows_of(codes, kRows, 0, 32),
                                             rows_of(codes, kRows, 32, 32)};
    EXPECT_EQ(pack_whole(kept, parts).bytes, expected.bytes) << format_name(layout.format);
  }
}

TEST(MatrixPacker, CodesOfOneFormatBecomeAnother) {
  const test::TemporaryDirectory directory;
  constexpr std::int64_t kRows = 32;
  write_matrix(directory.path(), kRows);
  const std::string quantized = directory.path_of("quantized");
  quantize_checkpoint(
      directory.path(), {Format::mxfp4}, [](std::string_view) { return true; }, quantized);
  const Checkpoint codes = Checkpoint::open(quantized);
  const std::vector<MatrixSource> parts = {rows_of(codes, kRows, 0, kRows)};
  // e2m1 times a power of two is exact in mxfp8: packed that way, the values are the same.
  const Layout layout{Format::mxfp8};
  const Packed packed = pack_whole({layout}, parts);
  std::vector<float> values(kRows * kDepth);
  parts[0].read_rows(0, kRows, std::span(values));
  const PackedMatrix matrix{
      .layout = layout, .rows = kRows, .depth = kDepth, .panels = packed.bytes.data()};
  std::vector<BFloat16> step(static_cast<std::size_t>(kTileBytes / 2));
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t k = 0; k < kDepth; ++k) {
      if (k % kStepDepth == 0) decode_step(matrix, row / 16, k / kStepDepth, step.data());
      const std::int64_t in_step = k % kStepDepth;
      const auto index = static_cast<std::size_t>(in_step / 2 * 32 + row % 16 * 2 + in_step % 2);
      ASSERT_EQ(to_float(step[index]), values[static_cast<std::size_t>(row * kDepth + k)])
          << row << " " << k;
    }
  }
}

}  // namespace
}  // namespace moesaic
