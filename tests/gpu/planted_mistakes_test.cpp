// Changes to the PTX of kernels, and to what they are given: each must be noticed, by the machine
// or by other bytes.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/setting.h"

namespace moesaic {
namespace {

const DeviceCase::Shape kShape = {.layout = {.format = Format::nvfp4},
                                  .hidden = 280,
                                  .width = 48,
                                  .rows = {5, 33, 12},
                                  .gating = {.limit = 1}};

std::string text_of(std::string_view module) {
  for (const DeviceImage& image : device_images()) {
    if (image.module == module && image.is_ptx) return image.bytes;
  }
  ADD_FAILURE() << "no PTX of " << module;
  return "";
}

struct Mistake {
  std::string_view from;
  std::string_view to;
  std::string_view kernel = "";  // empty: all
  int occurrence = 0;            // 0: all, 1: the first of the kernel
};

std::string with_mistake(std::string text, const Mistake& mistake) {
  int found = 0;
  std::size_t at = 0;
  if (!mistake.kernel.empty()) at = text.find(fmt::format(".entry {}(", mistake.kernel));
  while ((at = text.find(mistake.from, at)) != std::string::npos) {
    ++found;
    if (mistake.occurrence == 0 || mistake.occurrence == found) {
      text.replace(at, mistake.from.size(), mistake.to);
      at += mistake.to.size();
    } else {
      at += mistake.from.size();
    }
  }
  EXPECT_GE(found, std::max(1, mistake.occurrence)) << mistake.from << " is not there";
  return text;
}

/// What kernels of tensor cores, or portable ones, have to give.
struct Wanted {
  explicit Wanted(const DeviceCase::Shape& shape, int chip = 90)
      : mlps(shape), cpu(mlps.cpu_results()), mma(mlps.mma_results(chip)) {}

  DeviceCase mlps;
  std::vector<float> cpu;
  std::vector<float> mma;
};

DeviceKernels kernels_of(std::string_view module) {
  if (module.starts_with("portable")) return DeviceKernels::portable;
  return module.starts_with("grouped") ? DeviceKernels::cutlass : DeviceKernels::mma;
}

/// With a mistake in the module `name`, "mma/nvfp4"; all others are as they are.
void expect_caught(const Wanted& wanted, std::string_view name, const Mistake& mistake) {
  const std::string text = with_mistake(text_of(name), mistake);
  std::vector<DeviceImage> images(device_images().begin(), device_images().end());
  for (DeviceImage& image : images) {
    if (image.module == name && image.is_ptx) image.bytes = text.c_str();
  }
  const DeviceKernels kernels = kernels_of(name);
  try {
    const std::vector<float> results = fake_results(wanted.mlps, kernels, images);
    EXPECT_GT(different(results, kernels == DeviceKernels::portable ? wanted.cpu : wanted.mma), 0U)
        << name << ": " << mistake.from << " -> " << mistake.to << " was not noticed, "
        << mistake.kernel << " " << mistake.occurrence;
  } catch (const Error&) {  // noticed
  }
}

TEST(PlantedMistakes, in_portable_kernels_are_caught) {
  const Wanted wanted(kShape);
  for (const Mistake& mistake : {Mistake{"bar.sync \t0;", "", "gate_up", 1},
                                 {"bar.sync \t0;", "", "gate_up", 2},
                                 {"setp.ge.s32", "setp.gt.s32"},
                                 {"add.rn.ftz.f32", "add.rn.f32"},
                                 {"fma.rn.ftz.f32", "fma.rn.f32"},
                                 {"mul.rn.ftz.f32", "mul.rn.f32"},
                                 {"shfl.sync.bfly.b32 \t", "shfl.sync.idx.b32 \t"},
                                 {"shl.b32", "shr.u32"},
                                 {"prmt.b32", "shl.b32"},
                                 {"div.rn.f32", "mul.rn.f32"},
                                 {"ld.shared.v4.f32", "ld.global.v4.f32"},
                                 {"st.global.f32", "st.shared.f32"},
                                 {"setp.gt.f32", "setp.lt.f32"},
                                 {"fma.rn.bf16x2", "or.b32"}}) {
    expect_caught(wanted, "portable/nvfp4", mistake);
  }
}

TEST(PlantedMistakes, in_mma_kernels_are_caught) {
  const Wanted wanted(kShape);
  for (const Mistake& mistake : {Mistake{"bar.sync \t0;", "", "gate_up_128", 1},
                                 {"bar.sync \t0;", "", "gate_up_8", 1},
                                 {"bar.sync \t0;", "", "down_8", 1},
                                 {"cp.async.wait_group 1;", ""},
                                 {"cp.async.wait_group 1;", "cp.async.wait_group 2;"},
                                 {"cp.async.commit_group;", "", "gate_up_128", 1},
                                 {"16, 0, %p", "0, 16, %p", "gate_up_128", 1},
                                 {"16, 0, %p", "16, 16, %p"},
                                 {"setp.ge.s32", "setp.gt.s32"},
                                 {"fma.rn.bf16x2", "or.b32"},
                                 {"add.rn.f32", "sub.rn.f32"},
                                 {"mul.rn.f32", "mul.rn.ftz.f32"},
                                 {"xor.b32", "or.b32"},
                                 {"ld.shared.v4.u32", "ld.global.v4.u32"}}) {
    expect_caught(wanted, "mma/nvfp4", mistake);
  }
}

TEST(PlantedMistakes, in_kernels_of_activations_in_nvfp4_are_caught) {
  const Setting setting("MOESAIC_FAKE_CHIP", "120");
  DeviceCase::Shape shape = kShape;
  shape.hidden = 1304;  // several chunks, of the last one steps for every warp
  shape.activations = Nvfp4Activations::nvfp4;
  const Wanted wanted(shape, 120);
  EXPECT_EQ(different(fake_results(wanted.mlps, DeviceKernels::mma, device_images()), wanted.mma),
            0U);
  for (const Mistake& mistake : {Mistake{"bar.sync \t0;", "", "gate_up_128", 1},
                                 {"bar.sync \t0;", "", "gate_up_128", 2},
                                 {"bar.sync \t0;", "", "gate_up_128", 3},
                                 {"bar.sync \t0;", "", "gate_up_8", 1},
                                 {"bar.sync \t0;", "", "gate_up_8", 2},
                                 {"bar.sync \t0;", "", "gate_up_8", 3},
                                 {"bar.sync \t0;", "", "gate_up_8", 4},
                                 {"bar.sync \t0;", "", "gate_up_8", 7},
                                 {"cp.async.wait_group 0;", ""},
                                 {"setp.ge.s32", "setp.gt.s32"},
                                 {", 3;\n\t// begin", ", 2;\n\t// begin", "down_128"},
                                 {", 1;\n\tmov.b16", ", 0;\n\tmov.b16", "gate_up_8"},
                                 {"+272];", "+276];", "gate_up_128"},
                                 {"x4.shared.b16 {", "x4.trans.shared.b16 {", "down_32"},
                                 {"add.rn.f32", "sub.rn.f32"},
                                 {"xor.b32", "or.b32"},
                                 {"e2m1.e2m1", "e2m1.e3m2"}}) {
    expect_caught(wanted, "block_scaled/nvfp4", mistake);
  }
  for (const Mistake& mistake : {Mistake{"bar.sync \t0;", "", "quantize_rows", 1},
                                 {"shfl.sync.bfly.b32 \t", "shfl.sync.idx.b32 \t"},
                                 {"max.u32", "min.u32"},
                                 {"div.rn.f32", "mul.rn.f32"},
                                 {"st.global.u8", "st.global.u16"},
                                 {"add.rn.f32", "sub.rn.f32"}}) {
    expect_caught(wanted, "rows/nvfp4", mistake);
  }
}

TEST(PlantedMistakes, in_kernels_around_grouped_products_are_caught) {
  const Setting setting("MOESAIC_FAKE_CHIP", "100");
  DeviceCase::Shape shape = kShape;
  shape.hidden = 256;
  shape.width = 128;
  shape.rows = {5, 129, 0, 1, 3};
  shape.activations = Nvfp4Activations::nvfp4;
  const Wanted wanted(shape, 100);
  EXPECT_EQ(
      different(fake_results(wanted.mlps, DeviceKernels::cutlass, device_images()), wanted.mma),
      0U);
  for (const Mistake& mistake : {Mistake{"bar.sync \t0;", "", "place_groups", 1},
                                 {"shfl.sync.bfly.b32 \t", "shfl.sync.idx.b32 \t"},
                                 {"127;", "126;", "place_groups"},
                                 {"bar.sync \t0;", "", "quantize_groups", 1},
                                 {"max.u32", "min.u32"},
                                 {"st.global.u8", "st.global.u16"},
                                 {"div.rn.f32", "mul.rn.f32"},
                                 {"add.rn.f32", "sub.rn.f32", "gate_groups"},
                                 {"mul.rn.f32", "add.rn.f32", "scale_groups", 1},
                                 {"mul.rn.f32", "add.rn.f32", "scale_groups", 8},
                                 {"xor.b32", "or.b32", "arrange_matrix"},
                                 {"bfi.b32", "prmt.b32", "arrange_matrix", 1},
                                 {"st.global.v4.u32", "st.global.v2.u32", "arrange_matrix", 1}}) {
    expect_caught(wanted, "grouped/nvfp4", mistake);
  }
}

/// Runs with one thing wrong; true if that is noticed.
template <typename Change>
bool is_noticed(const Change& change) {
  DeviceCase wrong(kShape);
  change(wrong);
  try {
    const DeviceCase right(kShape);
    return different(fake_results(wrong, DeviceKernels::mma, device_images()),
                     right.mma_results(90)) > 0;
  } catch (const Error&) {
    return true;
  }
}

TEST(PlantedMistakesOfLaunches, are_caught) {
  EXPECT_FALSE(is_noticed([](DeviceCase&) {}));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { mlps.row_indices[3] = 9; }));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { mlps.row_indices[3] = -1; }));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { std::swap(mlps.mlps[0].gate, mlps.mlps[0].up); }));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { mlps.mlps[1].up.scale *= 2; }));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { mlps.num_rows -= 1; }));
  EXPECT_TRUE(is_noticed([](DeviceCase& mlps) { mlps.shape.gating.limit = 2; }));
}

}  // namespace
}  // namespace moesaic
