// What run.sh checks on a machine with GPUs, on those that are executed in software.

#include "tests/gpu/row_checks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/plan_checks.h"
#include "tests/gpu/setting.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(RowChecks, find_nothing_in_the_kernels_as_they_are) {
  Device device(fake_driver(), 0, device_images());
  for (const RowCheck& check : check_rows(device)) {
    EXPECT_EQ(different(check.got, check.wanted), 0U) << check.kernels;
    EXPECT_FALSE(check.wanted.empty()) << check.kernels;
  }
}

/// Most of what they compare being something.
void expect_right_plans(const GroupedLibrary* library) {
  Device device(fake_driver(), 0, device_images());
  for (const RowCheck& check : check_plans(device, library)) {
    EXPECT_EQ(different(check.got, check.wanted), 0U) << check.kernels << " " << check.what;
    EXPECT_GT(std::ranges::count_if(check.wanted, [](float value) { return value != 0; }), 100);
  }
}

TEST(RowChecks, find_nothing_in_plans_and_graphs) {
  expect_right_plans(nullptr);
}

TEST(RowChecks, find_nothing_in_plans_and_graphs_of_grouped_products) {
  const Setting chip("MOESAIC_FAKE_CHIP", "100");
  expect_right_plans(fake_library().get());
}

TEST(RowChecks, find_nothing_in_rows_between_gpus) {
  std::string reason;
  const auto library = NcclLibrary::load(reason, MOESAIC_FAKE_NCCL);
  ASSERT_NE(library, nullptr) << reason;
  for (const int gpus : {1, 3}) {
    const test::TemporaryDirectory folder;
    const Setting where("MOESAIC_FAKE_NCCL_FOLDER", folder.path());
    const Setting count("MOESAIC_FAKE_GPUS", std::to_string(gpus));
    const RowCheck check = check_nccl(fake_driver(), library);
    EXPECT_EQ(different(check.got, check.wanted), 0U) << gpus;
    EXPECT_EQ(check.wanted.empty(), gpus == 1);
  }
}

}  // namespace
}  // namespace moesaic
