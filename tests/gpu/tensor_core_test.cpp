// How tensor cores sum, and which lane has what.

#include "tests/gpu/ptx_machine/tensor_core.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/ptx_machine/machine.h"

namespace moesaic::ptx {
namespace {

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

/// Eight products of 2^-152, and two of a large number and a zero.
float sum_of_tiny(Family family, float c) {
  std::uint16_t a[16] = {};
  std::uint16_t b[16] = {};
  std::fill_n(a, 8, bf16(0x1p-100F));
  std::fill_n(b, 8, bf16(0x1p-52F));
  a[9] = b[12] = bf16(0x1p127F);
  b[9] = bf16(-0.0F);
  return mma_sum(family, a, b, c);
}

/// As an H200 showed (sm_90).
TEST(TensorCore, aligns_to_no_term_that_is_zero) {
  for (const Family family : {Family::ampere, Family::hopper}) {
    EXPECT_EQ(sum_of_tiny(family, 0), 0x1p-149F);
    EXPECT_EQ(sum_of_tiny(family, -0.0F), 0x1p-149F);
    EXPECT_EQ(sum_of(family, 0, 0x1p127F, 0x1p-60F), 0x1p-60F);
  }
}

TEST(TensorCore, aligns_to_subnormal_numbers_as_to_the_smallest_normal_one) {
  // 2^-149 counts as 2^-126, below which 2^-152 is cut; 2^-133 times 2^100 as 2^-26.
  EXPECT_EQ(sum_of_tiny(Family::hopper, 0x1p-149F), 0x1p-149F);
  EXPECT_EQ(sum_of(Family::hopper, 0x1p-133F, 0x1p100F, 0x1.8p-51F), 0x1p-33F + 0x1p-51F);
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

/// A kernel of one mma of a warp: each lane reads so many words, in registers from %r2 on, and
/// writes back those from `first_sum` on, four sums.
std::string mma_kernel(std::size_t words, std::size_t first_sum, std::string_view mma) {
  std::string text = fmt::format(R"(
.version 9.0
.visible .entry test(
  .param .u64 test_param_0
)
.maxntid 32, 1, 1
{{
  .reg .b32 %r<20>;
  ld.param.u64 %rd1, [test_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, {};
  add.s64 %rd3, %rd1, %rd2;
)",
                                 4 * words);
  for (std::size_t i = 0; i < words; ++i) {
    text += fmt::format("  ld.global.u32 %r{}, [%rd3+{}];\n", i + 2, 4 * i);
  }
  text += mma;
  for (std::size_t i = first_sum; i < first_sum + 4; ++i) {
    text += fmt::format("  st.global.u32 [%rd3+{}], %r{};\n", 4 * i, i + 2);
  }
  return text + "  ret;\n}";
}

/// Runs it on what the lanes have, a lane's words one after the other.
void run_mma(const std::string& kernel, int chip, std::vector<std::uint32_t>& registers) {
  DeviceMemory memory;
  const auto bytes = static_cast<std::int64_t>(registers.size() * 4);
  const std::uint64_t address = memory.allocate(bytes);
  memory.write(address, registers.data(), bytes);
  std::array<std::byte, 8> parameters;
  std::memcpy(parameters.data(), &address, 8);
  const Machine machine(kernel);
  machine.run("test", {.grid_x = 1, .threads = 32}, parameters, {memory, chip});
  memory.read(address, registers.data(), bytes);
}

constexpr std::string_view kBf16Mma =
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r8, %r9, %r10, %r11}, {%r2, %r3, %r4, "
    "%r5}, {%r6, %r7}, {%r8, %r9, %r10, %r11};\n";
/// With the scales of lanes 4 g + 2 of_a and the next, and of lane 4 g + of_b.
std::string nvfp4_mma(std::size_t of_a, std::size_t of_b) {
  return fmt::format(
      "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1."
      "f32.ue4m3 {{%r8, %r9, %r10, %r11}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%r8, %r9, %r10, "
      "%r11}}, %r12, {{0, {}}}, %r13, {{0, {}}};\n",
      of_a, of_b);
}

/// Which element each value of a lane is: "A lane value row k", as CUTLASS says
/// (tools/lane_maps.sh).
struct LaneValue {
  char operand;
  std::size_t lane;
  std::size_t value;
  std::size_t row;
  std::size_t column;
};
std::vector<LaneValue> read_lane_map(const std::string& name) {
  std::ifstream file(MOESAIC_TEST_DATA "/gpu/" + name);
  std::vector<LaneValue> map;
  for (LaneValue at{}; file >> at.operand >> at.lane >> at.value >> at.row >> at.column;) {
    map.push_back(at);
  }
  return map;
}

TEST(TensorCore, has_the_lane_maps_of_cutlass) {
  const std::vector<LaneValue> map = read_lane_map("mma_lanes.txt");
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
  run_mma(mma_kernel(10, 6, kBf16Mma), 90, registers);
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

/// Operands of an mma of nvfp4, drawn.
struct ScaledOperands {
  ScaledOperands() {
    std::mt19937 random(7);
    const auto draw = [&](auto& matrix) {
      for (auto& row : matrix.codes) {
        for (std::uint8_t& code : row) code = static_cast<std::uint8_t>(random() % 16);
      }
      for (auto& row : matrix.scales) {
        for (std::uint8_t& scale : row) scale = static_cast<std::uint8_t>(random() % 127);
      }
    };
    draw(a);
    draw(b);
    for (auto& row : c) {
      for (float& sum : row) sum = static_cast<float>(random() % 1000);
    }
  }
  ScaledMatrix<16> a{};
  ScaledMatrix<8> b{};
  float c[16][8];
};

std::uint32_t eight_codes(const std::uint8_t* codes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= std::uint32_t{codes[i]} << (4 * i);
  return word;
}
std::uint32_t four_scales(const std::uint8_t (&scales)[4]) {
  return scales[0] | scales[1] << 8 | scales[2] << 16 | std::uint32_t{scales[3]} << 24;
}

/// A line is a register: eight k from the one it names on, a sum, or the scales of a row.
TEST(TensorCore, has_the_lane_maps_of_cutlass_in_nvfp4) {
  const std::vector<LaneValue> map = read_lane_map("nvfp4_lanes.txt");
  ASSERT_EQ(map.size(), 128U + 64U + 128U + 32U + 32U);
  const ScaledOperands operands;
  std::vector<std::uint32_t> registers(32 * 12);
  for (const LaneValue& at : map) {
    std::uint32_t* const own = registers.data() + at.lane * 12;
    switch (at.operand) {
      case 'A':
        own[at.value] = eight_codes(operands.a.codes[at.row] + at.column);
        break;
      case 'B':
        own[4 + at.value] = eight_codes(operands.b.codes[at.row] + at.column);
        break;
      case 'C':
        own[6 + at.value] = std::bit_cast<std::uint32_t>(operands.c[at.row][at.column]);
        break;
      case 'a':
        own[10] = four_scales(operands.a.scales[at.row]);
        break;
      default:
        own[11] = four_scales(operands.b.scales[at.row]);
        break;
    }
  }
  EXPECT_THROW(run_mma(mma_kernel(12, 6, nvfp4_mma(0, 0)), 90, registers), MachineError);
  float wanted[16][8];
  std::memcpy(wanted, operands.c, sizeof wanted);
  mma_16x8x64(operands.a, operands.b, wanted);
  // Of four lanes two have scales of a, and one those of b; what others have there is not read.
  for (std::size_t lanes = 0; lanes < 8; ++lanes) {
    const std::size_t of_a = lanes / 4;
    const std::size_t of_b = lanes % 4;
    std::vector<std::uint32_t> own = registers;
    for (std::size_t lane = 0; lane < 32; ++lane) {
      if (lane % 4 / 2 != of_a) own[lane * 12 + 10] = 0x7f7f7f7f;
      if (lane % 4 != of_b) own[lane * 12 + 11] = 0x7f7f7f7f;
    }
    run_mma(mma_kernel(12, 6, nvfp4_mma(of_a, of_b)), 120, own);
    for (const LaneValue& at : map) {
      if (at.operand != 'C') continue;
      EXPECT_EQ(std::bit_cast<float>(own[at.lane * 12 + 6 + at.value]), wanted[at.row][at.column])
          << "lane " << at.lane << ", value " << at.value << ", scales of " << lanes;
    }
  }
  EXPECT_THROW(run_mma(mma_kernel(12, 6, nvfp4_mma(2, 0)), 120, registers), MachineError);
  EXPECT_THROW(run_mma(mma_kernel(12, 6, nvfp4_mma(0, 4)), 120, registers), MachineError);
}

TEST(TensorCore, gives_the_sums_of_mma_sim_in_nvfp4) {
  std::ifstream file(MOESAIC_TEST_DATA "/gpu/nvfp4_sums.txt");
  int lines = 0;
  for (std::string text; std::getline(file, text); ++lines) {
    std::istringstream line(text);
    std::uint32_t codes[24][8];  // of a, then of b, the lowest k in the low bits
    ScaledMatrix<16> a;
    ScaledMatrix<8> b;
    std::uint32_t c[2][16][8];  // the addends, and the sums
    read_bits<std::uint32_t>(line, {&codes[0][0], 24 * 8});
    read_bits<std::uint8_t>(line, {&a.scales[0][0], 16 * 4});
    read_bits<std::uint8_t>(line, {&b.scales[0][0], 8 * 4});
    read_bits<std::uint32_t>(line, {&c[0][0][0], 2 * 16 * 8});
    for (int i = 0; i < 24 * 64; ++i) {
      const auto code = static_cast<std::uint8_t>(codes[i / 64][i % 64 / 8] >> (i % 8 * 4) & 15);
      (i < 16 * 64 ? a.codes[i / 64] : b.codes[i / 64 - 16])[i % 64] = code;
    }
    float sums[16][8];
    std::memcpy(sums, c[0], sizeof sums);
    mma_16x8x64(a, b, sums);
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(sums[row][column]), c[1][row][column])
            << "line " << lines << ", row " << row << ", column " << column;
      }
    }
  }
  EXPECT_EQ(lines, 4);
}

}  // namespace
}  // namespace moesaic::ptx
