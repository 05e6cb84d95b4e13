// What the library of grouped products reads (kernels/cuda/grouped_arguments.h), byte by byte:
// weights, rows, scales and lists as our kernels make them, against plain loops; the places of
// scales against CUTLASS's own (tests/data/gpu/scale_places.txt, made by tools/lane_maps.sh).

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "kernels/cuda/grouped_mlps.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/nvfp4.h"
#include "tests/gpu/fake_gpu.h"

namespace moesaic {
namespace {

constexpr double kOperandSeconds = 60;
constexpr std::uint8_t kUntouched = 0xee;

/// Where the scale of a row and a group of 16 k stands: blocks of 128 rows and 4 groups, the four
/// groups of a row neighbours, rows 32 apart behind them, neighbouring rows 16 apart.
std::int64_t place_of_scale(std::int64_t row, std::int64_t group, std::int64_t depth) {
  const std::int64_t blocks = (depth / 16 + 3) / 4;  // of 128 rows
  std::int64_t place = (row / 128 * blocks + group / 4) * 512;
  place += row % 128 % 32 * 16;
  place += row % 128 / 32 * 4;
  return place + group % 4;
}

TEST(GroupedScales, are_where_cutlass_looks_for_them) {
  std::ifstream file(MOESAIC_TEST_DATA "/gpu/scale_places.txt");
  std::int64_t rows = 0;
  std::int64_t depth = 0;
  std::int64_t row = 0;
  std::int64_t group = 0;
  std::int64_t place = 0;
  std::int64_t count = 0;
  while (file >> rows >> depth >> row >> group >> place) {
    EXPECT_EQ(place_of_scale(row, group, depth), place)
        << rows << " x " << depth << ": row " << row << ", group " << group;
    ++count;
  }
  EXPECT_GT(count, 1000);
}

class GroupedOperands : public testing::Test {
 protected:
  template <typename T>
  CudaAddress put(const std::vector<T>& values) {
    buffers_.push_back(device_.allocate(std::ssize(values) * static_cast<std::int64_t>(sizeof(T))));
    device_.upload(buffers_.back().address(), values.data(), buffers_.back().bytes());
    wait();
    return buffers_.back().address();
  }
  template <typename T>
  std::vector<T> get(const void* from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device_.download(values.data(), reinterpret_cast<CudaAddress>(from),
                     count * static_cast<std::int64_t>(sizeof(T)));
    wait();
    return values;
  }
  template <typename Arguments>
  void run(const std::string& kernel, std::int64_t blocks, Arguments arguments) {
    device_.launch(device_.kernel("grouped/nvfp4", kernel),
                   {.grid_x = static_cast<unsigned>(blocks), .threads = 128}, &arguments);
    wait();
  }
  void wait() {
    device_.mark();
    device_.wait_for_mark(kOperandSeconds);
  }

  Device device_{fake_driver(), 0, device_images()};
  std::vector<DeviceBuffer> buffers_;
};

/// The bytes that a matrix becomes, from its elements as the CPU reads them.
std::vector<std::uint8_t> arranged(const PackedMatrix& matrix) {
  const std::int64_t code_bytes = matrix.rows * matrix.depth / 2;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(matrix.bytes()));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::byte* const panel = matrix.panel(row / kPanelColumns);
    const std::byte* const scales = panel + nvfp4_format::scales_offset(matrix.depth);
    for (std::int64_t k = 0; k < matrix.depth; ++k) {
      const std::uint8_t code = nearest_e2m1(e2m1_body::element(
          panel + k / kStepDepth * e2m1_body::kStepBytes, row % kPanelColumns, k % kStepDepth));
      const auto at = static_cast<std::size_t>((row * matrix.depth + k) / 2);
      bytes[at] |= static_cast<std::uint8_t>(code << (k % 2 * 4));
      const std::byte scale = scales[k / 16 * kPanelColumns + row % kPanelColumns];
      bytes[static_cast<std::size_t>(code_bytes + place_of_scale(row, k / 16, matrix.depth))] =
          std::to_integer<std::uint8_t>(scale);
    }
  }
  return bytes;
}

TEST_F(GroupedOperands, have_weights_as_they_are_read) {
  const DeviceCase mlps(
      {.layout = {.format = Format::nvfp4}, .hidden = 384, .width = 256, .rows = {1, 1}});
  std::vector<MlpWeights> there = mlps.mlps;
  std::vector<const PackedMatrix*> matrices;
  for (std::size_t i = 0; i < there.size(); ++i) {
    for (PackedMatrix MlpWeights::*const which :
         {&MlpWeights::gate, &MlpWeights::up, &MlpWeights::down}) {
      PackedMatrix& matrix = there[i].*which;
      matrices.push_back(&(mlps.mlps[i].*which));
      matrix.panels = reinterpret_cast<const std::byte*>(
          put(std::vector<std::byte>(matrix.panels, matrix.panels + matrix.bytes())));
    }
  }
  arrange_for_groups(device_, there);
  std::size_t at = 0;
  for (const MlpWeights& mlp : there) {
    for (const PackedMatrix* const matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
      EXPECT_EQ(get<std::uint8_t>(matrix->panels, matrix->bytes()), arranged(*matrices[at]))
          << "matrix " << at;
      ++at;
    }
  }
}

/// Rows of some groups, in memory that nobody has written.
class GroupedRowsOf : public GroupedOperands {
 protected:
  static constexpr std::int64_t kHidden = 256;
  static constexpr std::int64_t kWidth = 128;
  const std::vector<std::int32_t> rows_ = {3, 0, 128, 1, 0, 140};
  const std::int64_t num_rows_ = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  const std::int64_t num_groups_ = std::ssize(rows_);

  GroupedRowsOf() {
    std::int32_t first = 0;
    std::int32_t padded = 0;
    for (std::size_t group = 0; group < rows_.size(); ++group) {
      const auto mlp = static_cast<std::int32_t>(rows_.size() - 1 - group);
      tiles_.push_back({mlp, first, rows_[group]});
      first_padded_.push_back(padded);
      for (std::int32_t row = 0; row < rows_[group]; ++row) {
        places_.push_back({padded + row, mlp});
      }
      first += rows_[group];
      padded += (rows_[group] + 127) / 128 * 128;
    }
    for (std::int32_t mlp = 0; mlp < std::ssize(rows_); ++mlp) {
      const auto at = [&](int which) {
        return reinterpret_cast<const std::uint8_t*>(std::uintptr_t{0x10000} * (3 * mlp + which));
      };
      mlps_.push_back({at(1), at(2), at(3), 1, 1, 1, 0});
    }
  }
  /// Of a pass of so many rows, each byte of it `kUntouched`.
  [[nodiscard]] GroupedMemory make_memory() {
    const GroupedRoom room = {
        .rows = num_rows_, .mlps = num_groups_, .hidden = kHidden, .width = kWidth};
    return {room,
            put(std::vector<std::uint8_t>(static_cast<std::size_t>(room.bytes()), kUntouched))};
  }
  void place(const GroupedMemory& memory) {
    run("place_groups", num_groups_,
        cuda::PlaceArguments{.tiles = reinterpret_cast<const cuda::MlpTile*>(put(tiles_)),
                             .mlps = reinterpret_cast<const cuda::MlpMatrices*>(put(mlps_)),
                             .places = memory.places,
                             .gate_up = memory.gate_up,
                             .down = memory.down,
                             .rows = memory.rows,
                             .sums = memory.sums,
                             .y = y_,
                             .hidden = kHidden,
                             .width = kWidth});
  }

  std::vector<cuda::MlpTile> tiles_;
  std::vector<std::int32_t> first_padded_;
  std::vector<cuda::RowPlace> places_;
  std::vector<cuda::MlpMatrices> mlps_;
  float* const y_ = reinterpret_cast<float*>(std::uintptr_t{0x7000000});
};

/// What the lists of one product have to be.
struct WantedGroup {
  cuda::GroupShape shape;
  const std::uint8_t* a;
  const std::uint8_t* a_scales;
  const std::uint8_t* b;
  const float* d;
};

TEST_F(GroupedRowsOf, are_listed_group_by_group) {
  const GroupedMemory memory = make_memory();
  place(memory);
  const auto places = get<cuda::RowPlace>(memory.places, num_rows_);
  for (std::size_t row = 0; row < places.size(); ++row) {
    EXPECT_EQ(places[row].padded_row, places_[row].padded_row) << row;
    EXPECT_EQ(places[row].mlp, places_[row].mlp) << row;
  }
  const auto expect_list = [&](const cuda::GroupLists& lists,
                               const std::vector<WantedGroup>& wanted) {
    const std::int64_t count = std::ssize(wanted);
    const auto shapes = get<cuda::GroupShape>(lists.shapes, count);
    const auto a = get<const std::uint8_t*>(lists.a, count);
    const auto a_scales = get<const std::uint8_t*>(lists.a_scales, count);
    const auto b = get<const std::uint8_t*>(lists.b, count);
    const auto b_scales = get<const std::uint8_t*>(lists.b_scales, count);
    const auto d = get<float*>(lists.d, count);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const cuda::GroupShape& shape = wanted[i].shape;
      EXPECT_EQ(shapes[i].rows, shape.rows) << i;
      EXPECT_EQ(shapes[i].outputs, shape.outputs) << i;
      EXPECT_EQ(shapes[i].depth, shape.depth) << i;
      EXPECT_EQ(a[i], wanted[i].a) << i;
      EXPECT_EQ(a_scales[i], wanted[i].a_scales) << i;
      EXPECT_EQ(b[i], wanted[i].b) << i;
      EXPECT_EQ(b_scales[i], wanted[i].b + shape.outputs * shape.depth / 2) << i;
      EXPECT_EQ(d[i], wanted[i].d) << i;
    }
  };
  std::vector<WantedGroup> gate_up;
  std::vector<WantedGroup> down;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    const cuda::MlpTile& tile = tiles_[i];
    const cuda::MlpMatrices& mlp = mlps_[static_cast<std::size_t>(tile.mlp)];
    const cuda::GroupShape inner = {tile.num_rows, kWidth, kHidden};
    const std::uint8_t* const a = memory.rows.codes + tile.first_row * kHidden / 2;
    const std::uint8_t* const scales = memory.rows.scales + first_padded_[i] * kHidden / 16;
    const float* const sums = memory.sums + tile.first_row * 2 * kWidth;
    gate_up.push_back({inner, a, scales, mlp.gate, sums});
    gate_up.push_back({inner, a, scales, mlp.up, sums + kWidth});
    down.push_back({{tile.num_rows, kHidden, kWidth},
                    memory.rows.codes + tile.first_row * kWidth / 2,
                    memory.rows.scales + first_padded_[i] * kWidth / 16,
                    mlp.down,
                    y_ + tile.first_row * kHidden});
  }
  expect_list(memory.gate_up, gate_up);
  expect_list(memory.down, down);
}

/// Of two codes a byte: zeros of a group whose scale is zero have the signs of what they were.
std::vector<std::uint8_t> without_negative_zeros(std::vector<std::uint8_t> codes) {
  for (std::uint8_t& two : codes) {
    if ((two & 0x0f) == 0x08) two &= 0xf0;
    if ((two & 0xf0) == 0x80) two &= 0x0f;
  }
  return codes;
}

/// Scales between the groups stay what they are: rows that nobody has.
TEST_F(GroupedRowsOf, become_codes_and_padded_scales) {
  const DeviceCase inputs({.layout = {.format = Format::nvfp4},
                           .hidden = kHidden,
                           .width = kWidth,
                           .rows = {num_rows_},
                           .activations = Nvfp4Activations::nvfp4});
  for (const float input_scale : {0.0F, 0.0123F}) {
    const GroupedMemory memory = make_memory();
    place(memory);
    run("quantize_groups", num_rows_,
        cuda::GroupRowArguments{
            .from = reinterpret_cast<const std::uint16_t*>(put(inputs.x)),
            .row_indices = reinterpret_cast<const std::int32_t*>(put(inputs.row_indices)),
            .count = nullptr,
            .places = memory.places,
            .to = memory.rows,
            .depth = kHidden,
            .input_scale = input_scale});
    const std::int64_t padded_rows = first_padded_.back() + 256;
    std::vector<std::uint8_t> codes;
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(padded_rows * kHidden / 16),
                                     kUntouched);
    std::vector<float> powers;
    for (std::int64_t row = 0; row < num_rows_; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const Nvfp4Row taken =
          quantize_row({inputs.x.data() + inputs.row_indices[at] * kHidden, kHidden}, input_scale);
      for (std::size_t k = 0; k < taken.codes.size(); k += 2) {
        codes.push_back(static_cast<std::uint8_t>(taken.codes[k] | taken.codes[k + 1] << 4));
      }
      for (std::size_t group = 0; group < taken.scales.size(); ++group) {
        scales[static_cast<std::size_t>(
            place_of_scale(places_[at].padded_row, static_cast<std::int64_t>(group), kHidden))] =
            taken.scales[group];
      }
      powers.push_back(taken.power);
    }
    EXPECT_EQ(without_negative_zeros(get<std::uint8_t>(memory.rows.codes, std::ssize(codes))),
              without_negative_zeros(codes))
        << input_scale;
    EXPECT_EQ(get<std::uint8_t>(memory.rows.scales, std::ssize(scales)), scales) << input_scale;
    EXPECT_EQ(different(get<float>(memory.rows.row_scales, num_rows_), powers), 0U) << input_scale;
  }
}

}  // namespace
}  // namespace moesaic
