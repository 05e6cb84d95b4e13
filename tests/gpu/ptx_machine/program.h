#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/ptx_machine/device_memory.h"

namespace moesaic::ptx {

class Warp;
struct Instruction;

/// What an instruction does for the lanes of a mask, which is not empty.
using Execute = void (*)(Warp&, const Instruction&, std::uint32_t lanes);

/// How control goes on after an instruction.
enum class Control { next, branch, leave, barrier };

enum class Space { generic, global, shared, parameter };

/// One instruction. Registers, constants and addresses of variables are all *slots* of 32 lanes.
struct Instruction {
  Execute execute = nullptr;
  Control control = Control::next;
  std::array<std::int32_t, 20>
      slots{};  // operands in their order, vectors and addresses among them
  int num_slots = 0;
  std::array<std::int64_t, 2> offsets{};  // of addresses, in their order
  int num_addresses = 0;
  int guard = -1;  // slot of a predicate
  bool guard_negated = false;
  int target = -1;  // of a branch: an instruction
  // Of loads and stores.
  Space space = Space::generic;
  int items = 1;
  int item_bytes = 4;
  bool is_signed = false;

  int line = 0;
  std::string text;    // "ld.global.v2.u32"
  std::string symbol;  // of a branch or a parameter
};

/// Slots that the machine fills for every warp.
enum SpecialSlot : std::int32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kNumSpecialSlots
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::int32_t num_slots = kNumSpecialSlots;
  std::vector<std::pair<std::int32_t, std::uint64_t>> constants;  // slot, value
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;
  unsigned max_threads = 1024;
};

/// Kernels by name. Throws MachineError for text that it does not understand, with the line.
[[nodiscard]] std::map<std::string, Kernel> parse_program(const std::string& text);

/// Sets what an opcode does, by its whole name. False: nobody knows it.
[[nodiscard]] bool set_operation(Instruction& instruction);

}  // namespace moesaic::ptx
