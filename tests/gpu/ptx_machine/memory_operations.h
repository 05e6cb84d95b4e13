#pragma once

#include <cstdint>

#include "tests/gpu/ptx_machine/program.h"

namespace moesaic::ptx {

/// Sets what a load or a store does: ld and st, .global, .shared, .param or neither, .nc, .v2, .v4,
/// and a type. False for anything else.
[[nodiscard]] bool set_memory_operation(Instruction& instruction);

// cp.async: data land in shared memory when they are waited for, not before.
void begin_copy(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void close_copies(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void wait_for_copies(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace moesaic::ptx
