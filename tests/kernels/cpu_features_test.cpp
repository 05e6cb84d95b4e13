#include "kernels/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

/// The values of one field of the first CPU in /proc/cpuinfo; empty where there is none.
std::set<std::string> cpuinfo(const std::string& field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

/// Whether this build has kernels for it (MOESAIC_ISAS).
bool is_built(Isa isa) {
  return std::ranges::any_of(all_gemm_kernels(),
                             [&](const GemmKernel* kernel) { return kernel->isa == isa; });
}

TEST(CpuFeatures, names_round_trip) {
  for (int i = 0; i < kNumIsas; ++i) {
    const auto isa = static_cast<Isa>(i);
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  }
  EXPECT_EQ(isa_name(Isa::avx512_bf16), "avx512_bf16");
  EXPECT_FALSE(isa_from_name("sse9").has_value());
  EXPECT_FALSE(isa_from_name("").has_value());
}

TEST(CpuFeatures, scalar_comes_first_and_order_ascends) {
  const std::vector<Isa>& isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::scalar);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
  EXPECT_EQ(&isas, &supported_isas());
  for (int i = 0; i < kNumIsas; ++i) {
    const auto isa = static_cast<Isa>(i);
    EXPECT_EQ(is_supported(isa), std::find(isas.begin(), isas.end(), isa) != isas.end());
  }
}

TEST(CpuFeatures, agrees_with_the_operating_system) {
  const std::set<std::string> flags = cpuinfo("flags");
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const auto all = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](const char* name) { return flags.count(name) > 0; });
  };
  const bool avx2 = all({"avx2", "fma"});
  const bool avx512 = avx2 && all({"avx512f", "avx512bw", "avx512vl", "avx512dq"});
  const bool bf16 = avx512 && all({"avx512_bf16", "avx512vbmi", "avx512_vnni", "gfni"});
  EXPECT_EQ(is_supported(Isa::avx2), is_built(Isa::avx2) && avx2);
  EXPECT_EQ(is_supported(Isa::avx512), is_built(Isa::avx512) && avx512);
  EXPECT_EQ(is_supported(Isa::avx512_bf16), is_built(Isa::avx512_bf16) && bf16);
}

TEST(CpuFeatures, bf16_products_are_preferred_on_amd_only) {
  const bool amd = cpuinfo("vendor_id").count("AuthenticAMD") > 0;
  EXPECT_EQ(prefers_avx512_bf16(), amd && is_supported(Isa::avx512_bf16));
}

}  // namespace
}  // namespace moesaic
