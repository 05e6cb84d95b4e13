#include "kernels/roof.h"

#include <gtest/gtest.h>

#include <string>

#include "base/buffer.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

TEST(Roof, EveryUsableKernelHasALoopThatRuns) {
  ThreadPool pool(2);
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (!is_usable(*kernel)) continue;
    const MultiplyLoop& loop = find_multiply_loop(*kernel);
    const double operations = run_multiply_adds(loop, 1e7, pool);
    EXPECT_GT(operations, 0.5e7) << kernel->name << " " << loop.instruction;
    EXPECT_LT(operations, 2e7) << kernel->name << " " << loop.instruction;
  }
}

TEST(Roof, LoopsAreThoseOfTheInstructionThatMultiplies) {
  const auto name = [](Isa isa, Format format) {
    return std::string(find_multiply_loop(isa, format).instruction);
  };
  EXPECT_EQ(name(Isa::amx, Format::nvfp4), "TDPBF16PS");
  EXPECT_EQ(name(Isa::amx, Format::int4), "TDPBUSD");
  EXPECT_EQ(name(Isa::avx512_bf16, Format::mxfp8), "VDPBF16PS zmm");
  EXPECT_EQ(name(Isa::avx512, Format::int8), "VPDPBUSD zmm");
  EXPECT_EQ(name(Isa::avx512, Format::bf16), "VFMADD zmm");
  EXPECT_EQ(name(Isa::avx2, Format::int8), "VPMADDWD and VPADDD ymm");
  EXPECT_EQ(name(Isa::avx2, Format::int4), "VPMADDUBSW and VPADDW ymm");
  EXPECT_EQ(name(Isa::avx2, Format::f32), "VFMADD ymm");
}

TEST(Roof, ReadsMemoryToItsEndAndNotBeyond) {
  ThreadPool pool(2);
  const Buffer<std::byte> memory(5 << 20);
  for (const Prefetch& prefetch : {Prefetch{}, Prefetch{.bytes_ahead = 4096},
                                   Prefetch{.bytes_ahead = 1 << 30, .to_l1 = false}}) {
    run_reads(memory.span(), prefetch, pool);  // a sanitizer, or the end of the mapping, would tell
    run_reads(memory.span().last(1024), prefetch, pool);
    run_reads({}, prefetch, pool);
  }
}

}  // namespace
}  // namespace moesaic
