// What the machine must not let pass, and that a kernel without fault runs.

#include "tests/gpu/ptx_machine/machine.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

namespace moesaic::ptx {
namespace {

/// A kernel with a pointer as its parameter, in %rd1, the thread's index in %r1, 4 times it in
/// %rd2, and 256 bytes of shared memory.
std::string kernel_text(const std::string& body, std::size_t shared_bytes = 256) {
  return fmt::format(R"(
.version 9.0
.visible .entry test(
  .param .u64 test_param_0
)
.maxntid 128, 1, 1
{{
  .reg .b32 %r<9>;
  .shared .align 16 .b8 memory[{}];
  ld.param.u64 %rd1, [test_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  shl.b32 %r4, %r1, 2;
  mov.u32 %r2, memory;
  add.s32 %r3, %r2, %r4;
  {}
  ret;
}})",
                     shared_bytes, body);
}

struct Run {
  unsigned threads = 64;
  unsigned blocks = 1;
  std::size_t shared_bytes = 256;
  std::int64_t written = 256;  // bytes of the integers that the host writes
  Counters* counters = nullptr;
};

/// The error of a kernel that gets 64 unsigned integers, 0, 1, 2, ...; empty without one.
std::string error_of(const std::string& body, const Run& run = {},
                     std::vector<std::uint32_t>* results = nullptr) {
  DeviceMemory memory;
  const std::uint64_t at = memory.allocate(256);
  std::vector<std::uint32_t> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0U);
  memory.write(at, numbers.data(), run.written);
  std::array<std::byte, 8> parameters;
  std::memcpy(parameters.data(), &at, 8);
  try {
    const Machine machine(kernel_text(body, run.shared_bytes));
    machine.run("test", {.grid_x = run.blocks, .threads = run.threads}, parameters,
                {memory, 90, run.counters});
    memory.read(at, numbers.data(), run.written);
  } catch (const MachineError& error) {
    return error.what();
  }
  if (results != nullptr) *results = numbers;
  return "";
}

TEST(PtxMachine, runs_branches_that_part_and_join) {
  std::vector<std::uint32_t> results;
  const std::string body = R"(
  ld.global.u32 %r5, [%rd3];
  setp.lt.u32 %p1, %r5, 40;
  @%p1 bra $small;
  add.s32 %r5, %r5, 1000;
  bra.uni $both;
$small:
  add.s32 %r5, %r5, 100;
$both:
  shfl.sync.bfly.b32 %r6|%p2, %r5, 1, 31, -1;
  st.global.u32 [%rd3], %r6;)";
  ASSERT_EQ(error_of(body, {}, &results), "");
  EXPECT_EQ(results[4], 105U);
  EXPECT_EQ(results[41], 1040U);
}

/// What a body that changes %r5 leaves there, of 64 threads.
std::vector<std::uint32_t> left_in_r5(const std::string& body) {
  std::vector<std::uint32_t> results;
  EXPECT_EQ(error_of(body + "\nst.global.u32 [%rd3], %r5;", {}, &results), "");
  return results;
}

TEST(PtxMachine, exchanges_and_counts) {
  EXPECT_EQ(left_in_r5("shfl.sync.up.b32 %r5|%p1, %r1, 3, 0, -1;")[34], 34U);
  EXPECT_EQ(left_in_r5("shfl.sync.up.b32 %r5|%p1, %r1, 3, 0, -1;")[35], 32U);
  EXPECT_EQ(left_in_r5("shfl.sync.idx.b32 %r5|%p1, %r1, 31, 31, -1;")[7], 31U);
  EXPECT_EQ(left_in_r5("shfl.sync.idx.b32 %r5|%p1, %r1, 31, 31, -1;")[40], 63U);
  EXPECT_EQ(left_in_r5("and.b32 %r6, %r1, 3; match.any.sync.b32 %r5, %r6, -1;")[33], 0x22222222U);
  EXPECT_EQ(left_in_r5("popc.b32 %r5, %r1;")[63], 6U);
  EXPECT_EQ(left_in_r5("clz.b32 %r5, %r1;")[0], 32U);
  EXPECT_EQ(left_in_r5("clz.b32 %r5, %r1;")[17], 27U);
  EXPECT_EQ(left_in_r5("mov.u32 %r6, -1; bfi.b32 %r5, %r1, %r6, 4, 8;")[5], 0xfffff05fU);
  EXPECT_EQ(left_in_r5("mov.u32 %r6, 7; bfi.b32 %r5, %r1, %r6, 30, 8;")[5], 0x40000007U);
}

void expect_error(const std::string& body, const std::string& part, const Run& run = {}) {
  const std::string error = error_of(body, run);
  EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
}

TEST(PtxMachine, stops_at_what_it_does_not_know) {
  expect_error("vadd.s32.s32.s32 %r5, %r1, %r1;", "unknown instruction vadd");
  expect_error("add.sat.s32 %r5, %r1, %r1;", "unknown instruction add.sat.s32");
  expect_error("ld.volatile.global.u32 %r5, [%rd1];", "unknown instruction ld.volatile");
  expect_error("bra $nowhere;", "no label $nowhere");
  expect_error("mov.u32 %r5, other;", "unknown");
}

TEST(PtxMachine, checks_every_access) {
  expect_error("st.global.u32 [%rd3+4], %r1;", "address 256 (+4) of an allocation of 256 bytes");
  expect_error("ld.global.u32 %r5, [%rd3+-4];", "outside all allocations");
  expect_error("st.global.u32 [%rd1+2], %r1;", "misaligned");
  expect_error("st.shared.u32 [%r3+4], %r1;", "shared address 256");
  expect_error("ld.shared.u32 %r5, [%r3];", "is read before it is written");
  expect_error("st.shared.v2.u32 [%r3], {%r1, %r1};", "misaligned shared address");
  expect_error("ld.param.u64 %rd4, [test_param_0+8];", "outside the parameters");
  EXPECT_EQ(error_of("ld.global.u32 %r5, [%rd3];", {.threads = 32, .written = 128}), "");
  expect_error("ld.global.u32 %r5, [%rd3];",
               "byte 124 of an allocation of 256 is read before it is written",
               {.threads = 32, .written = 124});
}

TEST(PtxMachine, gives_a_block_the_shared_memory_of_every_chip) {
  EXPECT_EQ(error_of("", {.shared_bytes = 48 * 1024}), "");
  expect_error("", "too much shared memory", {.shared_bytes = 48 * 1024 + 1});
}

/// What a warp does for `body` beyond what it does without it.
Counters cost_of(const std::string& body) {
  Counters cost;
  Counters empty;
  EXPECT_EQ(error_of("", {.threads = 32, .counters = &empty}), "");
  EXPECT_EQ(error_of(body, {.threads = 32, .counters = &cost}), "");
  EXPECT_EQ(empty.global_bytes + empty.global_sectors + empty.shared_passes, 0U);
  cost.instructions -= empty.instructions;
  return cost;
}

TEST(PtxMachine, counts_instructions_and_sectors) {
  const auto expect = [](const std::string& body, std::uint64_t instructions, std::uint64_t bytes,
                         std::uint64_t sectors) {
    const Counters cost = cost_of(body);
    EXPECT_EQ(cost.instructions, instructions) << body;
    EXPECT_EQ(cost.global_bytes, bytes) << body;
    EXPECT_EQ(cost.global_sectors, sectors) << body;
    EXPECT_EQ(cost.shared_passes + cost.mma, 0U) << body;
  };
  expect("popc.b32 %r5, %r1;", 1, 0, 0);
  expect("ld.global.u32 %r5, [%rd3];", 1, 128, 4);
  expect("st.global.u32 [%rd3], %r1;", 1, 128, 4);
  expect("ld.global.u32 %r5, [%rd1];", 1, 128, 1);                            // all the same word
  expect("add.s64 %rd4, %rd3, %rd2; ld.global.u32 %r5, [%rd4];", 2, 128, 8);  // every other one
  expect("setp.lt.u32 %p1, %r1, 9; @%p1 ld.global.u32 %r5, [%rd3];", 2, 36, 2);
  expect("add.s64 %rd4, %rd3, 16; ld.global.u32 %r5, [%rd4];", 2, 128, 5);  // in the middle of one
}

TEST(PtxMachine, counts_passes_over_the_banks) {
  const auto expect = [](const std::string& body, std::uint64_t passes, std::uint64_t conflicts) {
    const Counters cost = cost_of(body);
    EXPECT_EQ(cost.shared_passes, passes) << body;
    EXPECT_EQ(cost.shared_conflicts, conflicts) << body;
    EXPECT_EQ(cost.global_sectors, 0U) << body;
  };
  const std::string apart = "shl.b32 %r5, %r1, 3; add.s32 %r5, %r2, %r5; ";
  expect("st.shared.u32 [%r3], %r1;", 1, 0);
  expect("st.shared.u32 [%r2], %r1;", 1, 0);                    // all the same word
  expect(apart + "st.shared.u32 [%r5], %r1;", 1, 1);            // two words a bank
  expect(apart + "st.shared.v2.u32 [%r5], {%r1, %r1};", 2, 0);  // half of the lanes each
}

TEST(PtxMachine, finds_races) {
  const std::string exchange = R"(
  st.shared.u32 [%r3], %r1;
  {}
  xor.b32 %r5, %r4, 128;
  add.s32 %r5, %r5, %r2;
  ld.shared.u32 %r6, [%r5];)";
  EXPECT_EQ(error_of(fmt::format(fmt::runtime(exchange), "bar.sync 0;")), "");
  expect_error(fmt::format(fmt::runtime(exchange), ""), "read before it is written");
  expect_error("st.shared.u32 [%r2], %r1;", "race of two warps on shared byte 0");
  expect_error("st.global.u32 [%rd3], %r1;", "two blocks write the same word",
               {.threads = 32, .blocks = 2});
  expect_error(
      "mov.u32 %r5, %ctaid.x; setp.eq.s32 %p1, %r5, 0;\n"
      "@%p1 st.global.u32 [%rd3], %r1; @!%p1 ld.global.u32 %r6, [%rd3];",
      "a block reads what another of the launch wrote", {.threads = 32, .blocks = 2});
}

TEST(PtxMachine, wants_all_lanes_and_warps_together) {
  expect_error("setp.lt.u32 %p1, %r1, 8; @%p1 bar.sync 0;", "not all lanes");
  expect_error("setp.lt.u32 %p1, %r1, 32; @%p1 bra $end; bar.sync 0;\n$end:\n",
               "wait at a barrier");
  expect_error("setp.lt.u32 %p1, %r1, 31; @%p1 shfl.sync.bfly.b32 %r6|%p2, %r5, 1, 31, -1;",
               "only 31 of 32 lanes");
  for (const std::string call : {"match.any.sync.b32 %r6, %r5, -1;", "bar.warp.sync -1;",
                                 "shfl.sync.up.b32 %r6|%p2, %r5, 1, 0, -1;"}) {
    expect_error("setp.lt.u32 %p1, %r1, 31; @%p1 " + call, "only 31 of 32 lanes");
  }
  expect_error("bar.warp.sync 65535;", "fewer than 32 lanes");
  expect_error("", "blocks of 256 threads; it was made for 128", {.threads = 256});
}

TEST(PtxMachine, loads_matrices) {
  // 16 rows of 4 words, from the last on: lane 4 g + t gets word t of the g-th row of each matrix.
  const std::string rows = R"(
  st.shared.u32 [%r3], %r1;
  bar.sync 0;
  and.b32 %r4, %r1, 15;
  shl.b32 %r4, %r4, 4;
  sub.s32 %r4, 240, %r4;
  add.s32 %r4, %r2, %r4;
  {})";
  const auto load = [&](const std::string& call) { return fmt::format(fmt::runtime(rows), call); };
  const std::string four = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];";
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto words = left_in_r5(load(four + fmt::format(" mov.u32 %r5, %r{};", 5 + matrix)));
    for (unsigned thread = 0; thread < 64; ++thread) {
      const unsigned row = 15 - (static_cast<unsigned>(matrix) * 8 + thread % 32 / 4) % 16;
      EXPECT_EQ(words[thread], row * 4 + thread % 4) << "matrix " << matrix;
    }
  }
  const std::string two = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r6, %r5}, [%r4];";
  EXPECT_EQ(left_in_r5(load(two))[33], 29U);
  expect_error(load("setp.lt.u32 %p1, %r1, 31; @%p1 " + four), "only 31 of 32 lanes");
  expect_error(load("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r6, %r5}, [%r4+-8];"),
               "misaligned shared address");
  expect_error(load("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r6, %r5}, [%r4+16];"),
               "shared address 256");
  expect_error("mov.u32 %r4, %r2; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r6, %r5}, [%r4];",
               "is read before it is written");
}

TEST(PtxMachine, lands_copies_when_they_are_waited_for) {
  const std::string copy = R"(
  and.b32 %r5, %r1, 15;
  shl.b32 %r5, %r5, 4;
  add.s32 %r6, %r2, %r5;
  cvt.u64.u32 %rd4, %r5;
  add.s64 %rd5, %rd1, %rd4;
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra $wait;
  mov.u32 %r8, {};
  cp.async.cg.shared.global [%r6], [%rd5], 16, %r8;
$wait:
  cp.async.commit_group;
  {}
  bar.sync 0;
  ld.shared.u32 %r7, [%r3];
  st.global.u32 [%rd3], %r7;)";
  const auto waiting = [&](int bytes, std::string_view wait) {
    return fmt::format(fmt::runtime(copy), bytes, wait);
  };
  EXPECT_EQ(error_of(waiting(16, "cp.async.wait_group 0;")), "");
  expect_error(waiting(16, ""), "is read before a copy to it has landed");
  expect_error(waiting(16, "cp.async.wait_group 1;"), "is read before a copy to it has landed");
  const std::string reads = "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r7, [%r3];";
  EXPECT_EQ(error_of(reads + "bar.sync 0;" + waiting(16, "cp.async.wait_group 0;")), "");
  expect_error(reads + waiting(16, "cp.async.wait_group 0;"), "race of two warps");
  EXPECT_EQ(error_of(waiting(0, "cp.async.wait_group 0;")), "");  // zeros
  expect_error(waiting(17, "cp.async.wait_group 0;"), "reads more than 16 bytes");
}

}  // namespace
}  // namespace moesaic::ptx
