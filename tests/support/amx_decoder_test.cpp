#include "tests/support/amx_decoder.h"

#include <gtest/gtest.h>

#include <vector>

namespace moesaic::test {
namespace {

using Code = std::vector<std::uint8_t>;

// The numbers of registers in an encoding.
enum Register {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR12 = 12,
  kR13,
  kR15 = 15
};

struct Encoded {
  const char* text;  // as GNU as reads it; the bytes are what it writes
  Code code;
  AmxInstruction expected;  // length and name apart
};

const Encoded kEncoded[] = {
    {"ldtilecfg (%rdi)",
     {0xc4, 0xe2, 0x78, 0x49, 0x07},
     {.operation = AmxOperation::ldtilecfg, .base = kRdi}},
    {"ldtilecfg 0x1234(%rip)",
     {0xc4, 0xe2, 0x78, 0x49, 0x05, 0x34, 0x12, 0x00, 0x00},
     {.operation = AmxOperation::ldtilecfg, .base = kNextInstruction, .displacement = 0x1234}},
    {"ldtilecfg -64(%rsp)",
     {0xc4, 0xe2, 0x78, 0x49, 0x44, 0x24, 0xc0},
     {.operation = AmxOperation::ldtilecfg, .base = kRsp, .displacement = -64}},
    {"ldtilecfg (%r13)",
     {0xc4, 0xc2, 0x78, 0x49, 0x45, 0x00},
     {.operation = AmxOperation::ldtilecfg, .base = kR13}},
    {"sttilecfg 256(%rbp)",
     {0xc4, 0xe2, 0x79, 0x49, 0x85, 0x00, 0x01, 0x00, 0x00},
     {.operation = AmxOperation::sttilecfg, .base = kRbp, .displacement = 256}},
    {"tilerelease", {0xc4, 0xe2, 0x78, 0x49, 0xc0}, {.operation = AmxOperation::tilerelease}},
    {"tilezero %tmm5",
     {0xc4, 0xe2, 0x7b, 0x49, 0xe8},
     {.operation = AmxOperation::tilezero, .tile = 5}},
    {"tileloadd (%rsi), %tmm3",
     {0xc4, 0xe2, 0x7b, 0x4b, 0x1c, 0x26},
     {.operation = AmxOperation::tileload, .tile = 3, .base = kRsi}},
    {"tileloadd (%rax,%r12,2), %tmm1",
     {0xc4, 0xa2, 0x7b, 0x4b, 0x0c, 0x60},
     {.operation = AmxOperation::tileload, .tile = 1, .base = kRax, .index = kR12, .scale = 2}},
    {"tileloadd (%r13,%rcx,8), %tmm7",
     {0xc4, 0xc2, 0x7b, 0x4b, 0x7c, 0xcd, 0x00},
     {.operation = AmxOperation::tileload, .tile = 7, .base = kR13, .index = kRcx, .scale = 8}},
    {"tileloadd -128(%r9,%rdx,4), %tmm0",
     {0xc4, 0xc2, 0x7b, 0x4b, 0x44, 0x91, 0x80},
     {.operation = AmxOperation::tileload,
      .base = kR9,
      .index = kRdx,
      .scale = 4,
      .displacement = -128}},
    {"tileloadd 0x1000(%rbp,%r15,1), %tmm2",
     {0xc4, 0xa2, 0x7b, 0x4b, 0x94, 0x3d, 0x00, 0x10, 0x00, 0x00},
     {.operation = AmxOperation::tileload,
      .tile = 2,
      .base = kRbp,
      .index = kR15,
      .displacement = 0x1000}},
    {"tileloadd 0x40(,%rax,1), %tmm2",
     {0xc4, 0xe2, 0x7b, 0x4b, 0x14, 0x05, 0x40, 0x00, 0x00, 0x00},
     {.operation = AmxOperation::tileload, .tile = 2, .index = kRax, .displacement = 0x40}},
    {"tileloaddt1 (%rsi,%r8,1), %tmm6",
     {0xc4, 0xa2, 0x79, 0x4b, 0x34, 0x06},
     {.operation = AmxOperation::tileload, .tile = 6, .base = kRsi, .index = kR8}},
    {"tilestored %tmm4, 64(%rsp,%rbx,1)",
     {0xc4, 0xe2, 0x7a, 0x4b, 0x64, 0x1c, 0x40},
     {.operation = AmxOperation::tilestored,
      .tile = 4,
      .base = kRsp,
      .index = kRbx,
      .displacement = 64}},
    {"tdpbf16ps %tmm7, %tmm6, %tmm5",
     {0xc4, 0xe2, 0x42, 0x5c, 0xee},
     {.operation = AmxOperation::tdpbf16ps, .tile = 5, .a = 6, .b = 7}},
    {"tdpbssd %tmm2, %tmm1, %tmm0",
     {0xc4, 0xe2, 0x6b, 0x5e, 0xc1},
     {.operation = AmxOperation::tdpbssd, .a = 1, .b = 2}},
    {"tdpbsud %tmm2, %tmm1, %tmm0",
     {0xc4, 0xe2, 0x6a, 0x5e, 0xc1},
     {.operation = AmxOperation::tdpbsud, .a = 1, .b = 2}},
    {"tdpbusd %tmm2, %tmm1, %tmm0",
     {0xc4, 0xe2, 0x69, 0x5e, 0xc1},
     {.operation = AmxOperation::tdpbusd, .a = 1, .b = 2}},
    {"tdpbuud %tmm2, %tmm1, %tmm0",
     {0xc4, 0xe2, 0x68, 0x5e, 0xc1},
     {.operation = AmxOperation::tdpbuud, .a = 1, .b = 2}},
};

TEST(AmxDecoder, decodes_what_the_assembler_writes) {
  for (const auto& [text, code, expected] : kEncoded) {
    const std::optional<AmxInstruction> decoded = decode_amx(code.data());
    ASSERT_TRUE(decoded) << text;
    EXPECT_EQ(decoded->operation, expected.operation) << text;
    EXPECT_EQ(std::string(text).find(decoded->name), 0) << text;
    EXPECT_EQ(decoded->length, static_cast<int>(code.size())) << text;
    EXPECT_EQ(decoded->tile, expected.tile) << text;
    EXPECT_EQ(decoded->a, expected.a) << text;
    EXPECT_EQ(decoded->b, expected.b) << text;
    EXPECT_EQ(decoded->base, expected.base) << text;
    EXPECT_EQ(decoded->index, expected.index) << text;
    EXPECT_EQ(decoded->scale, expected.scale) << text;
    EXPECT_EQ(decoded->displacement, expected.displacement) << text;
  }
}

struct Other {
  const char* text;
  Code code;
  std::ptrdiff_t deciding_bytes;  // from here on nothing has to be read
};

// Neighbours of AMX instructions, and AMX instructions with one field changed.
const Other kOthers[] = {
    {"ud2", {0x0f, 0x0b}, 1},
    {"vzeroupper", {0xc5, 0xf8, 0x77}, 1},
    {"tmm8 as C", {0xc4, 0x62, 0x6b, 0x5e, 0xc1}, 2},
    {"another opcode map", {0xc4, 0xe1, 0x6b, 0x5e, 0xc1}, 2},
    {"W = 1", {0xc4, 0xe2, 0xeb, 0x5e, 0xc1}, 3},
    {"L = 1", {0xc4, 0xe2, 0x6f, 0x5e, 0xc1}, 3},
    {"vfmadd231ps", {0xc4, 0xe2, 0x69, 0xb8, 0xc1}, 4},
    {"tdpfp16ps", {0xc4, 0xe2, 0x6b, 0x5c, 0xc1}, 4},
    {"tmm8 as A", {0xc4, 0xc2, 0x6b, 0x5e, 0xc1}, 5},
    {"tmm8 as B", {0xc4, 0xe2, 0x3b, 0x5e, 0xc1}, 5},
    {"a product with memory", {0xc4, 0xe2, 0x6b, 0x5e, 0x01}, 5},
    {"tileloadd without SIB", {0xc4, 0xe2, 0x7b, 0x4b, 0x0e}, 5},
    {"tileloadd of a register", {0xc4, 0xe2, 0x7b, 0x4b, 0xcc}, 5},
    {"tileloadd with vvvv = 1", {0xc4, 0xe2, 0x73, 0x4b, 0x1c, 0x26}, 5},
    {"ldtilecfg with reg = 1", {0xc4, 0xe2, 0x78, 0x49, 0x0f}, 5},
    {"tilerelease with rm = 1", {0xc4, 0xe2, 0x78, 0x49, 0xc1}, 5},
    {"tilezero with rm = 1", {0xc4, 0xe2, 0x7b, 0x49, 0xe9}, 5},
};

TEST(AmxDecoder, leaves_other_instructions_alone) {
  for (const auto& [text, code, deciding_bytes] : kOthers) {
    EXPECT_FALSE(decode_amx(code.data())) << text;
    // AddressSanitizer would see a decoder that reads on.
    const Code beginning(code.begin(), code.begin() + deciding_bytes);
    EXPECT_FALSE(decode_amx(beginning.data())) << text;
  }
}

}  // namespace
}  // namespace moesaic::test
