#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace moesaic::test {

enum class AmxOperation {
  ldtilecfg,
  sttilecfg,
  tilerelease,
  tilezero,
  tileload,  // TILELOADD and TILELOADDT1, which differ in a hint to the caches
  tilestored,
  tdpbf16ps,  // the first product
  tdpbssd,
  tdpbsud,
  tdpbusd,
  tdpbuud,
};

/// Registers of an address by their number in the encoding (0 to 15: rax, rcx, rdx, rbx, rsp, rbp,
/// rsi, rdi, r8, ...), or one of these.
inline constexpr int kNoRegister = -1;
inline constexpr int kNextInstruction = 16;  // the address after the instruction

/// One AMX instruction as it stands in the code. Parts that it does not have keep their defaults.
struct AmxInstruction {
  AmxOperation operation{};
  const char* name = "";
  int length = 0;        // bytes
  std::size_t tile = 0;  // loaded, stored, zeroed or added to
  std::size_t a = 0;     // factors of a product, in the order of Intel's manual: C += A B
  std::size_t b = 0;
  // The operand in memory is at base + displacement. The index register times scale is no part of
  // the address, it is the distance of two rows.
  int base = kNoRegister;
  int index = kNoRegister;
  int scale = 1;
  std::int32_t displacement = 0;

  [[nodiscard]] bool is_product() const { return operation >= AmxOperation::tdpbf16ps; }
};

/// The AMX instruction that starts at `code`, or nothing if another one does. Reads no byte behind
/// the first one that rules AMX out. Prefixes in front of VEX (segments, 32-bit addresses) are not
/// understood.
[[nodiscard]] std::optional<AmxInstruction> decode_amx(const std::uint8_t* code);

}  // namespace moesaic::test
