// What the machine must not let pass, and that a kernel without fault runs.

#include "tests/gpu/ptx_machine/machine.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <span>
#include <sstream>
#include <string>

namespace moesaic::ptx {
namespace {

/// A kernel with a pointer as its parameter, in %rd1, the thread's index in %r1, 4 times it in
/// %rd2, and 256 bytes of shared memory.
std::string kernel_text(const std::string& body) {
  return fmt::format(R"(
.version 9.0
.visible .entry test(
  .param .u64 test_param_0
)
.maxntid 128, 1, 1
{{
  .reg .b32 %r<9>;
  .shared .align 16 .b8 memory[256];
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
                     body);
}

struct Run {
  unsigned threads = 64;
  unsigned blocks = 1;
};

/// The error of a kernel that gets 64 unsigned integers, 0, 1, 2, ...; empty without one.
std::string error_of(const std::string& body, const Run& run = {},
                     std::vector<std::uint32_t>* results = nullptr) {
  DeviceMemory memory;
  const std::uint64_t at = memory.allocate(256);
  std::vector<std::uint32_t> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0U);
  memory.write(at, numbers.data(), 256);
  std::array<std::byte, 8> parameters;
  std::memcpy(parameters.data(), &at, 8);
  try {
    const Machine machine(kernel_text(body));
    machine.run("test", {.grid_x = run.blocks, .threads = run.threads}, parameters, {memory, 90});
    memory.read(at, numbers.data(), 256);
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
  expect_error("", "blocks of 256 threads; it was made for 128", {.threads = 256});
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
  cp.async.cg.shared.global [%r6], [%rd5], 16;
$wait:
  cp.async.commit_group;
  {}
  bar.sync 0;
  ld.shared.u32 %r7, [%r3];
  st.global.u32 [%rd3], %r7;)";
  EXPECT_EQ(error_of(fmt::format(fmt::runtime(copy), "cp.async.wait_group 0;")), "");
  expect_error(fmt::format(fmt::runtime(copy), ""), "is read before it is written");
  expect_error(fmt::format(fmt::runtime(copy), "cp.async.wait_group 1;"), "before it is written");
}

std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

/// One product among zeros, and c.
float sum_of(Family family, float a, float b, float c) {
  std::uint16_t left[16] = {bf16(a)};
  std::uint16_t right[16] = {bf16(b)};
  return mma_sum(family, left, right, c);
}

TEST(TensorCore, cuts_what_is_far_below_the_largest_term) {
  for (const Family family : {Family::ampere, Family::hopper}) {
    EXPECT_EQ(sum_of(family, 1.5F, 2, 0.25F), 3.25F);
    EXPECT_EQ(sum_of(family, 1, 1, -0x1p-30F), 1.0F);  // not 1 - 2^-24: cut, not rounded
    EXPECT_EQ(sum_of(family, 0x1p-100F, 0x1p-40F, 0), 0x1p-140F);  // subnormal numbers are kept
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sum_of(family, INFINITY, 0, 0)), 0x7fffffffU);
    EXPECT_EQ(sum_of(family, INFINITY, 1, 0), INFINITY);
  }
  // 2^-24 below 1 has 25 fractional bits in one family and is cut at 24 in the other; below that
  // both lose it. The result is cut to 23.
  EXPECT_EQ(sum_of(Family::hopper, 1, 1, -0x1p-25F), 1 - 0x1p-24F);
  EXPECT_EQ(sum_of(Family::ampere, 1, 1, -0x1p-25F), 1.0F);
}

TEST(TensorCore, sums_eight_products_at_a_time_on_ampere) {
  std::uint16_t a[16] = {};
  std::uint16_t b[16] = {};
  a[0] = b[0] = bf16(1);
  a[1] = bf16(0x1p-13F);  // half a unit in the last place of 1, twice, in both halves
  b[1] = bf16(0x1p-11F);
  a[8] = a[1];
  b[8] = b[1];
  EXPECT_EQ(mma_sum(Family::hopper, a, b, 0), 1 + 0x1p-23F);
  EXPECT_EQ(mma_sum(Family::ampere, a, b, 0), 1.0F);
}

/// One mma of a warp: each lane reads its registers of a (4), b (2) and c (4), and writes those of
/// the sums over them.
constexpr std::string_view kMmaKernel = R"(
.version 9.0
.visible .entry test(
  .param .u64 test_param_0
)
.maxntid 32, 1, 1
{
  .reg .b32 %r<20>;
  ld.param.u64 %rd1, [test_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 40;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [%rd3+4];
  ld.global.u32 %r4, [%rd3+8];
  ld.global.u32 %r5, [%rd3+12];
  ld.global.u32 %r6, [%rd3+16];
  ld.global.u32 %r7, [%rd3+20];
  ld.global.u32 %r8, [%rd3+24];
  ld.global.u32 %r9, [%rd3+28];
  ld.global.u32 %r10, [%rd3+32];
  ld.global.u32 %r11, [%rd3+36];
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r8, %r9, %r10, %r11}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%r8, %r9, %r10, %r11};
  st.global.u32 [%rd3+24], %r8;
  st.global.u32 [%rd3+28], %r9;
  st.global.u32 [%rd3+32], %r10;
  st.global.u32 [%rd3+36], %r11;
  ret;
})";

/// Which element each value of a lane is: "A lane value row k", as CUTLASS says
/// (tools/lane_maps.sh).
struct LaneValue {
  char operand;
  std::size_t lane;
  std::size_t value;
  std::size_t row;
  std::size_t column;
};
std::vector<LaneValue> read_lane_map() {
  std::ifstream file(MOESAIC_TEST_DATA "/gpu/mma_lanes.txt");
  std::vector<LaneValue> map;
  for (LaneValue at{}; file >> at.operand >> at.lane >> at.value >> at.row >> at.column;) {
    map.push_back(at);
  }
  return map;
}

TEST(TensorCore, has_the_lane_maps_of_cutlass) {
  const std::vector<LaneValue> map = read_lane_map();
  ASSERT_EQ(map.size(), 512U);
  float a[16][16];
  float b[8][16];
  float c[16][8];
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t k = 0; k < 16; ++k) {
      a[row][k] = static_cast<float>((row * 7 + k * 3) % 11) - 5;
      b[row / 2][k] = static_cast<float>((row / 2 * 5 + k * 9) % 13) - 6;
      c[row][k / 2] = static_cast<float>(row * 8 + k / 2);
    }
  }
  std::vector<std::uint32_t> registers(32 * 10);
  for (const LaneValue& at : map) {
    const std::size_t first = at.lane * 10;
    if (at.operand == 'C') {
      registers[first + 6 + at.value] = std::bit_cast<std::uint32_t>(c[at.row][at.column]);
      continue;
    }
    const bool is_a = at.operand == 'A';
    const float value = is_a ? a[at.row][at.column] : b[at.row][at.column];
    registers[first + (is_a ? 0 : 4) + at.value / 2] |= std::uint32_t{bf16(value)}
                                                        << (at.value % 2 * 16);
  }
  DeviceMemory memory;
  const auto bytes = static_cast<std::int64_t>(registers.size() * 4);
  const std::uint64_t address = memory.allocate(bytes);
  memory.write(address, registers.data(), bytes);
  std::array<std::byte, 8> parameters;
  std::memcpy(parameters.data(), &address, 8);
  const Machine machine{std::string(kMmaKernel)};
  machine.run("test", {.grid_x = 1, .threads = 32}, parameters, {memory, 90});
  memory.read(address, registers.data(), bytes);
  for (const LaneValue& at : map) {
    if (at.operand != 'C') continue;
    float wanted = c[at.row][at.column];
    for (std::size_t k = 0; k < 16; ++k) wanted += a[at.row][k] * b[at.column][k];
    EXPECT_EQ(std::bit_cast<float>(registers[at.lane * 10 + 6 + at.value]), wanted)
        << "lane " << at.lane << ", value " << at.value;
  }
}

/// The next numbers of a line, in hex.
template <typename T>
void read_bits(std::istringstream& line, std::span<T> out) {
  for (T& bits : out) {
    std::string word;
    line >> word;
    bits = static_cast<T>(std::stoul(word, nullptr, 16));
  }
}

TEST(TensorCore, gives_the_sums_of_mma_sim) {
  std::ifstream file(MOESAIC_TEST_DATA "/gpu/mma_sums.txt");
  int lines = 0;
  for (std::string text; std::getline(file, text); ++lines) {
    std::istringstream line(text);
    int chip = 0;
    line >> chip;
    std::uint16_t a[16][16];
    std::uint16_t b[8][16];
    std::uint32_t c[2][16][8];  // the addends, and the sums
    read_bits<std::uint16_t>(line, {&a[0][0], 16 * 16});
    read_bits<std::uint16_t>(line, {&b[0][0], 8 * 16});
    read_bits<std::uint32_t>(line, {&c[0][0][0], 2 * 16 * 8});
    float sums[16][8];
    std::memcpy(sums, c[0], sizeof sums);
    mma_16x8x16(family_of(chip), a, b, sums);
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(sums[row][column]), c[1][row][column])
            << "line " << lines << ", row " << row << ", column " << column;
      }
    }
  }
  EXPECT_EQ(lines, 12);
}

}  // namespace
}  // namespace moesaic::ptx
