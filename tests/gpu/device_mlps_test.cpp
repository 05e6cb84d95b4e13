// Kernels of GPUs, executed in software from their PTX: portable ones give the bytes of the scalar
// CPU kernel, those of tensor cores the bytes of plain loops.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/formats/elements.h"
#include "kernels/nvfp4_activations.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/setting.h"

namespace moesaic {
namespace {

/// Of portable kernels, most results being numbers that differ from 0.
void expect_bytes_of_the_cpu(const std::vector<DeviceCase::Shape>& shapes) {
  for (const DeviceCase::Shape& shape : shapes) {
    const DeviceCase mlps(shape);
    const std::vector<float> wanted = mlps.cpu_results();
    EXPECT_EQ(different(fake_results(mlps, DeviceKernels::portable, device_images()), wanted), 0U)
        << shape.hidden << " x " << shape.width;
    EXPECT_GT(std::ranges::count_if(wanted, [](float y) { return std::isfinite(y) && y != 0; }),
              std::ssize(wanted) / 2);
  }
}

class DeviceMlpsIn : public testing::TestWithParam<Layout> {};

TEST_P(DeviceMlpsIn, portable_give_the_bytes_of_the_cpu) {
  expect_bytes_of_the_cpu(device_shapes(GetParam()));
}

TEST_P(DeviceMlpsIn, mma_give_the_bytes_of_plain_loops) {
  std::vector<int> chips = {80, 90};  // one of each family
  if (GetParam().format == Format::nvfp4) chips.push_back(120);
  for (const int chip : chips) {
    const Setting setting("MOESAIC_FAKE_CHIP", std::to_string(chip));
    for (const DeviceCase::Shape& shape : device_shapes(GetParam())) {
      const DeviceCase mlps(shape);
      EXPECT_EQ(different(fake_results(mlps, DeviceKernels::mma, device_images()),
                          mlps.mma_results(chip)),
                0U)
          << shape.hidden << " x " << shape.width << ", sm_" << chip;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceMlpsIn, testing::ValuesIn(device_layouts()),
                         [](const auto& layout) { return layout_text(layout.param); });

/// Of rows rounded with scales of their own, and with one that is given.
class DeviceMlpsOfRoundedRows : public testing::TestWithParam<float> {
 protected:
  static std::vector<DeviceCase::Shape> shapes() {
    return device_shapes({.format = Format::nvfp4}, Nvfp4Activations::nvfp4, GetParam());
  }
};

TEST_P(DeviceMlpsOfRoundedRows, portable_give_the_bytes_of_the_cpu) {
  expect_bytes_of_the_cpu(shapes());
}

TEST_P(DeviceMlpsOfRoundedRows, block_scaled_give_the_bytes_of_plain_loops) {
  for (const int chip : {120, 121}) {
    const Setting setting("MOESAIC_FAKE_CHIP", std::to_string(chip));
    for (const DeviceCase::Shape& shape : shapes()) {
      const DeviceCase mlps(shape);
      EXPECT_EQ(different(fake_results(mlps, DeviceKernels::mma, device_images()),
                          mlps.mma_results(chip)),
                0U)
          << shape.hidden << " x " << shape.width << ", sm_" << chip;
    }
  }
}

/// What the plain loops take for a row in nvfp4 is what the CPU makes of it.
TEST_P(DeviceMlpsOfRoundedRows, are_those_of_the_cpu) {
  const DeviceCase mlps(shapes().front());
  const auto hidden = static_cast<std::size_t>(mlps.shape.hidden);
  for (std::size_t first = 0; first < mlps.x.size(); first += hidden) {
    const std::span<const BFloat16> row = std::span(mlps.x).subspan(first, hidden);
    std::vector<float> rounded;
    for (const BFloat16 value : row) rounded.push_back(to_float(value));
    round_to_nvfp4(rounded, GetParam());
    const Nvfp4Row taken = quantize_row(row, GetParam());
    std::vector<float> values;
    for (std::size_t k = 0; k < hidden; ++k) {
      values.push_back(e2m1_to_float(taken.codes[k]) * e4m3_to_float(taken.scales[k / 16]) *
                       taken.power);
    }
    for (std::size_t k = 0; k < hidden; ++k) {
      EXPECT_TRUE(values[k] == rounded[k] || (std::isnan(values[k]) && std::isnan(rounded[k])))
          << "row " << first / hidden << ", k " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, DeviceMlpsOfRoundedRows, testing::Values(0.0F, 0.0123F));

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const DeviceCase::Shape kSmall = {
    .layout = {.format = Format::nvfp4}, .hidden = 32, .width = 32, .rows = {2}, .gating = {}};

TEST(Device, says_what_it_lacks) {
  const auto run = [] {
    (void)fake_results(DeviceCase(kSmall), DeviceKernels::mma, device_images());
  };
  {
    const Setting setting("MOESAIC_FAKE_CHIP", "75");
    EXPECT_EQ(message_of(run),
              "GPU 0 (PTX machine, sm_75) can have no kernels mma/nvfp4: they are made for sm_80 "
              "and later");
  }
  DeviceCase::Shape rounded = kSmall;
  rounded.activations = Nvfp4Activations::nvfp4;
  EXPECT_EQ(message_of([&] {
              (void)fake_results(DeviceCase(rounded), DeviceKernels::mma, device_images());
            }),
            "GPU 0 (PTX machine, sm_90) can have no kernels block_scaled/nvfp4: none were built "
            "for it");
  std::string reason;
  EXPECT_EQ(CudaDriver::load(reason, "/no/libcuda.so.1"), nullptr);
  EXPECT_EQ(reason.find("no NVIDIA driver: /no/libcuda.so.1"), 0U) << reason;
  EXPECT_EQ(CudaDriver::load(reason, "libm.so.6"), nullptr);
  EXPECT_EQ(reason, "the NVIDIA driver is too old: it has no cuInit");
  const Setting setting("MOESAIC_FAKE_VERSION", "12040");
  EXPECT_EQ(CudaDriver::load(reason, MOESAIC_FAKE_DRIVER), nullptr);
  EXPECT_EQ(reason, "the NVIDIA driver is too old: it has CUDA 12.4, 13.0 is needed");
}

TEST(Device, that_hangs_is_left_at_the_deadline) {
  Device device(fake_driver(), 0, device_images());
  const Setting setting("MOESAIC_FAKE_HANGS", "1");
  device.mark();
  EXPECT_EQ(message_of([&] { device.wait_for_mark(0.01); }),
            "GPU 0 (PTX machine) has not finished a copy within 0.01 s");
}

TEST(Device, describes_itself) {
  const Setting setting("MOESAIC_FAKE_GPUS", "2");
  const std::vector<DeviceInfo> devices = visible_devices(*fake_driver());
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].name, "PTX machine");
  EXPECT_EQ(devices[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(devices[1].chip, 90);
  EXPECT_EQ(devices[1].memory_bytes, 1 << 30);
}

}  // namespace
}  // namespace moesaic
