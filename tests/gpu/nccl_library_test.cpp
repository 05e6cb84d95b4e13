// NCCL as it is found and started, without a GPU.

#include "comm/nccl_library.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/setting.h"

namespace moesaic {
namespace {

TEST(NcclLibrary, tells_its_version_and_file) {
  std::string reason;
  const auto nccl = NcclLibrary::load(reason, MOESAIC_FAKE_NCCL);
  ASSERT_NE(nccl, nullptr) << reason;
  EXPECT_EQ(nccl->version_text(), "2.28.9");
  EXPECT_EQ(nccl->path(), MOESAIC_FAKE_NCCL);
}

TEST(NcclLibrary, that_is_not_there_or_too_old_is_named) {
  std::string reason;
  EXPECT_EQ(NcclLibrary::load(reason, "/no/libnccl.so.2"), nullptr);
  EXPECT_EQ(reason.find("no NCCL: /no/libnccl.so.2: "), 0U) << reason;
  EXPECT_EQ(NcclLibrary::load(reason, MOESAIC_FAKE_DRIVER), nullptr);
  EXPECT_EQ(reason, MOESAIC_FAKE_DRIVER " is not NCCL: it has no ncclGetVersion");
  const Setting setting("MOESAIC_FAKE_NCCL_VERSION", "21005");
  EXPECT_EQ(NcclLibrary::load(reason, MOESAIC_FAKE_NCCL), nullptr);
  EXPECT_EQ(reason, "NCCL 2.10.5 (" MOESAIC_FAKE_NCCL ") is too old: 2.18.0 is needed");
}

/// Where NVIDIA's is installed it has all that is asked for. In a process of its own: a library
/// stays loaded, and answers to its name.
TEST(NcclLibraryDeathTest, of_nvidia_has_all_functions) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load = [] {
    std::string reason;
    const auto nccl = NcclLibrary::load(reason);
    std::fprintf(stderr, "%s\n", nccl != nullptr ? nccl->path().c_str() : reason.c_str());
    std::_Exit(nccl != nullptr || reason.starts_with("no NCCL") ? 0 : 1);
  };
  EXPECT_EXIT(load(), testing::ExitedWithCode(0), "libnccl.so.2");
}

}  // namespace
}  // namespace moesaic
