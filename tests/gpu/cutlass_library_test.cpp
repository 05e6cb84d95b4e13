// libmoesaic_cutlass.so itself, as far as its host code goes: no GPU is here. That its kernels are
// for both chips tells cutlass_code_test.sh.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/grouped_library.h"
#include "kernels/cuda/grouped_room.h"

namespace moesaic {
namespace {

class CutlassLibrary : public testing::Test {
 protected:
  CutlassLibrary() : library_(GroupedLibrary::load(reason_, MOESAIC_CUTLASS_LIBRARY)) {}
  void SetUp() override { ASSERT_NE(library_, nullptr) << reason_; }

  std::string reason_;
  std::shared_ptr<const GroupedLibrary> library_;
};

TEST_F(CutlassLibrary, tells_what_it_is) {
  EXPECT_EQ(library_->name().find("CUTLASS 4.2.0, CUDA 13."), 0U) << library_->name();
}

/// The formula of kernels/cuda/grouped_arguments.h, which our kernels follow.
TEST_F(CutlassLibrary, looks_for_scales_where_our_kernels_put_them) {
  for (const cuda::GroupShape& shape : {cuda::GroupShape{384, 128, 256}, {131072, 128, 128}}) {
    for (int row = 0; row < shape.rows; row += row < 384 ? 1 : 1021) {
      for (int group = 0; group < shape.depth / 16; ++group) {
        const std::int64_t block = std::int64_t{row} / 128 * (shape.depth / 64) + group / 4;
        const std::int64_t place = block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4;
        for (int k = 16 * group; k < 16 * group + 16; k += 15) {
          ASSERT_EQ(library_->scale_place(&shape, row, k), place) << row << ", " << k;
        }
      }
    }
  }
}

TEST_F(CutlassLibrary, works_in_the_memory_that_is_counted) {
  for (const int multiprocessors : {1, 148, 160, 192}) {
    EXPECT_GT(library_->workspace_bytes(multiprocessors), 0);
    EXPECT_LE(library_->workspace_bytes(multiprocessors), kGroupedWorkspaceBytes);
  }
}

TEST_F(CutlassLibrary, has_the_same_layouts_for_any_number_of_groups) {
  const cuda::GroupedProduct product = {.lists = {},
                                        .layouts = nullptr,
                                        .workspace = nullptr,
                                        .num_groups = 3,
                                        .outputs = 768,
                                        .depth = 2048,
                                        .result_stride = 1536,
                                        .device = 0,
                                        .multiprocessors = 148};
  const std::int64_t bytes = library_->layout_bytes(3);
  EXPECT_GT(library_->layout_bytes(300), bytes);
  std::vector<std::uint8_t> first(static_cast<std::size_t>(bytes), 0xee);
  std::vector<std::uint8_t> second = first;
  EXPECT_EQ(library_->write_layouts(&product, first.data()), nullptr);
  cuda::GroupedProduct other = product;
  EXPECT_EQ(library_->write_layouts(&other, second.data()), nullptr);
  EXPECT_EQ(first, second);
  other.result_stride = 768;
  EXPECT_EQ(library_->write_layouts(&other, second.data()), nullptr);
  EXPECT_NE(first, second);
}

TEST_F(CutlassLibrary, refuses_sizes_that_it_cannot_load) {
  const cuda::GroupedProduct product = {.lists = {},
                                        .layouts = nullptr,
                                        .workspace = nullptr,
                                        .num_groups = 1,
                                        .outputs = 128,
                                        .depth = 40,
                                        .result_stride = 128,
                                        .device = 0,
                                        .multiprocessors = 148};
  std::vector<std::uint8_t> layouts(static_cast<std::size_t>(library_->layout_bytes(1)));
  const char* const reason = library_->write_layouts(&product, layouts.data());
  ASSERT_NE(reason, nullptr);
  EXPECT_NE(std::string(reason), "");
}

}  // namespace
}  // namespace moesaic
