#include "base/cuda_driver.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(CudaDriver, tells_its_release_where_linux_does) {
  const test::TemporaryDirectory folder;
  const std::string file = folder.path_of("version");
  EXPECT_EQ(cuda_driver_release(file), "");
  test::write_text(file, "580.65.06\n");
  EXPECT_EQ(cuda_driver_release(file), "580.65.06");
}

TEST(CudaDriver, says_why_there_is_none) {
  std::string reason;
  EXPECT_EQ(CudaDriver::load(reason, "/no/libcuda.so.1"), nullptr);
  EXPECT_EQ(reason.rfind("no NVIDIA driver: /no/libcuda.so.1", 0), 0U) << reason;
  EXPECT_EQ(CudaDriver::load(reason, "libc.so.6"), nullptr);
  EXPECT_EQ(reason, "the NVIDIA driver is too old: it has no cuInit");
}

}  // namespace
}  // namespace moesaic
