#include "tests/support/amx_decoder.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace moesaic::test {
namespace {

// What stands in the bytes after VEX and opcode.
enum class Operands { none, memory, rows, tile, product };

struct Encoding {
  AmxOperation operation;
  const char* name;
  std::uint8_t opcode;
  std::uint8_t prefix;  // the pp field of VEX: none, 66, F3, F2
  Operands operands;
};

constexpr Encoding kEncodings[] = {
    {AmxOperation::ldtilecfg, "ldtilecfg", 0x49, 0, Operands::memory},
    {AmxOperation::sttilecfg, "sttilecfg", 0x49, 1, Operands::memory},
    {AmxOperation::tilerelease, "tilerelease", 0x49, 0, Operands::none},
    {AmxOperation::tilezero, "tilezero", 0x49, 3, Operands::tile},
    {AmxOperation::tileload, "tileloadd", 0x4b, 3, Operands::rows},
    {AmxOperation::tileload, "tileloaddt1", 0x4b, 1, Operands::rows},
    {AmxOperation::tilestored, "tilestored", 0x4b, 2, Operands::rows},
    {AmxOperation::tdpbf16ps, "tdpbf16ps", 0x5c, 2, Operands::product},
    {AmxOperation::tdpbssd, "tdpbssd", 0x5e, 3, Operands::product},
    {AmxOperation::tdpbsud, "tdpbsud", 0x5e, 2, Operands::product},
    {AmxOperation::tdpbusd, "tdpbusd", 0x5e, 1, Operands::product},
    {AmxOperation::tdpbuud, "tdpbuud", 0x5e, 0, Operands::product},
};

// C4, [~R ~X ~B map:5], [W ~vvvv:4 L pp:2], opcode, [mod:2 reg:3 rm:3]. R, X and B are the fourth
// bits of reg, of the index and of rm or the base; there are only eight tiles.
struct Fields {
  explicit Fields(const std::uint8_t* code)
      : x((~code[1] >> 6 & 1) * 8),
        b((~code[1] >> 5 & 1) * 8),
        vvvv(~code[2] >> 3 & 15),
        mod(code[4] >> 6),
        reg(code[4] >> 3 & 7),
        rm(code[4] & 7) {}

  int x, b;
  int vvvv;
  int mod, reg, rm;
};

bool accepts(Operands operands, const Fields& fields) {
  const bool is_register = fields.mod == 3;
  switch (operands) {
    case Operands::none:
      return is_register && fields.reg == 0 && fields.rm == 0 && fields.vvvv == 0;
    case Operands::memory:
      return !is_register && fields.reg == 0 && fields.vvvv == 0;
    case Operands::rows:
      return !is_register && fields.rm == 4 && fields.vvvv == 0;
    case Operands::tile:
      return is_register && fields.rm == 0 && fields.vvvv == 0;
    case Operands::product:
      return is_register && fields.b == 0 && fields.vvvv < 8;
  }
  return false;
}

const Encoding* find_encoding(const std::uint8_t* code) {
  constexpr int kMap0f38 = 2;
  if (code[0] != 0xc4 || (code[1] & 0x9f) != (0x80 | kMap0f38)) return nullptr;  // R = 0
  if ((code[2] & 0x84) != 0) return nullptr;                                     // W = L = 0
  const auto* found =
      std::find_if(std::begin(kEncodings), std::end(kEncodings), [&](const Encoding& encoding) {
        return encoding.opcode == code[3] && encoding.prefix == (code[2] & 3) &&
               accepts(encoding.operands, Fields(code));
      });
  return found == std::end(kEncodings) ? nullptr : found;
}

// Fills in the address and adds the bytes of SIB and displacement to the length.
void decode_memory(const std::uint8_t* code, const Fields& fields, AmxInstruction& instruction) {
  int displacement_bytes = fields.mod == 1 ? 1 : fields.mod == 2 ? 4 : 0;
  instruction.base = fields.b + fields.rm;
  if (fields.rm == 4) {  // a SIB byte: [scale:2 index:3 base:3]
    const int sib = code[instruction.length++];
    instruction.scale = 1 << (sib >> 6);
    instruction.index = fields.x + (sib >> 3 & 7);
    if (instruction.index == 4) instruction.index = kNoRegister;
    instruction.base = fields.b + (sib & 7);
  }
  if (fields.mod == 0 && (instruction.base & 7) == 5) {
    instruction.base = fields.rm == 4 ? kNoRegister : kNextInstruction;
    displacement_bytes = 4;
  }
  if (displacement_bytes == 1) {
    instruction.displacement = static_cast<std::int8_t>(code[instruction.length]);
  } else if (displacement_bytes == 4) {
    std::memcpy(&instruction.displacement, code + instruction.length, 4);
  }
  instruction.length += displacement_bytes;
}

}  // namespace

std::optional<AmxInstruction> decode_amx(const std::uint8_t* code) {
  const Encoding* encoding = find_encoding(code);
  if (encoding == nullptr) return std::nullopt;
  const Fields fields(code);
  AmxInstruction instruction{
      .operation = encoding->operation,
      .name = encoding->name,
      .length = 5,
      .tile = static_cast<std::size_t>(fields.reg),
  };
  if (instruction.is_product()) {
    instruction.a = static_cast<std::size_t>(fields.rm);
    instruction.b = static_cast<std::size_t>(fields.vvvv);
  } else if (fields.mod != 3) {
    decode_memory(code, fields, instruction);
  }
  return instruction;
}

}  // namespace moesaic::test
