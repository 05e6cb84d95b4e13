// Gated MLPs through the library of grouped products, which is one of plain loops here: all that
// stands around its products is executed from the PTX.

#include "kernels/cuda/grouped_mlps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/grouped_shapes.h"
#include "tests/gpu/setting.h"

namespace moesaic {
namespace {

/// Of rows rounded with scales of their own, and with one that is given.
class GroupedMlpsOf : public testing::TestWithParam<float> {};

TEST_P(GroupedMlpsOf, give_the_bytes_of_plain_loops) {
  for (const int chip : {100, 103}) {
    const Setting setting("MOESAIC_FAKE_CHIP", std::to_string(chip));
    for (const DeviceCase::Shape& shape : grouped_shapes(GetParam())) {
      const DeviceCase mlps(shape);
      const std::vector<float> wanted = mlps.mma_results(chip);
      EXPECT_EQ(different(fake_results(mlps, DeviceKernels::cutlass, device_images()), wanted), 0U)
          << shape.hidden << " x " << shape.width << ", sm_" << chip;
      EXPECT_GT(std::ranges::count_if(wanted, [](float y) { return std::isfinite(y) && y != 0; }),
                std::ssize(wanted) / 2);
    }
  }
}

/// About the numbers of the CPU: only the order of sums differs, and which way a rounding of gated
/// activations to four bits turns over.
TEST_P(GroupedMlpsOf, give_about_the_numbers_of_the_cpu) {
  const Setting setting("MOESAIC_FAKE_CHIP", "100");
  const DeviceCase mlps(grouped_shapes(GetParam()).front());
  const std::vector<float> got = fake_results(mlps, DeviceKernels::cutlass, device_images());
  const std::vector<float> wanted = mlps.cpu_results();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(wanted[i])) continue;
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(wanted[i]), 2);
    norm += std::pow(static_cast<double>(wanted[i]), 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Scales, GroupedMlpsOf, testing::Values(0.0F, 0.0123F));

std::string grouped_failure(const DeviceCase::Shape& shape) {
  const Setting chip("MOESAIC_FAKE_CHIP", "100");
  try {
    (void)fake_results(DeviceCase(shape), DeviceKernels::cutlass, device_images());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GroupedMlps, say_what_they_cannot_multiply) {
  DeviceCase::Shape shape = grouped_shapes(0).back();
  EXPECT_EQ(grouped_failure(shape), "");
  shape.width = 64;
  EXPECT_EQ(grouped_failure(shape),
            "the library of grouped products: it takes sizes that are multiples of 128, not 64 x "
            "128");
  shape.layout = {.format = Format::mxfp4};
  EXPECT_EQ(grouped_failure(shape),
            "the library of grouped products: it multiplies matrices in nvfp4 alone, not in mxfp4");
}

TEST(GroupedMlps, count_their_memory_and_stay_in_it) {
  const GroupedRoom room = {.rows = 300, .mlps = 5, .hidden = 256, .width = 128};
  EXPECT_EQ(room.groups(), 5);
  EXPECT_EQ((GroupedRoom{.rows = 3, .mlps = 5, .hidden = 128, .width = 128}).groups(), 3);
  const GroupedMemory memory(room, 1 << 20);
  EXPECT_EQ(memory.end, (1U << 20) + static_cast<CudaAddress>(room.bytes()));
  for (std::int64_t rows = 1; rows < 300; ++rows) {  // of a graph that is for fewer
    GroupedRoom fewer = room;
    fewer.rows = rows;
    EXPECT_LE(fewer.bytes(), room.bytes()) << rows;
  }
}

TEST(GroupedLibrary, that_is_none_says_so) {
  std::string reason;
  EXPECT_EQ(GroupedLibrary::load(reason, "/no/libmoesaic_cutlass.so"), nullptr);
  EXPECT_EQ(reason.find("/no/libmoesaic_cutlass.so: cannot open"), 0U) << reason;
  EXPECT_EQ(GroupedLibrary::load(reason, "libm.so.6"), nullptr);
  EXPECT_EQ(reason, "libm.so.6 has no moesaic_cutlass_interface");
  const Setting setting("MOESAIC_FAKE_CUTLASS_INTERFACE", "7");
  EXPECT_EQ(GroupedLibrary::load(reason, MOESAIC_FAKE_CUTLASS), nullptr);
  EXPECT_NE(reason.find("libmoesaic_cutlass.so was made for another Moesaic: it has version 7 of "
                        "the interface, 1 is needed"),
            std::string::npos)
      << reason;
}

}  // namespace
}  // namespace moesaic
