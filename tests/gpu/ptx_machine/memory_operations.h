#pragma once

#include <cstdint>

#include "tests/gpu/ptx_machine/program.h"

namespace moesaic::ptx {

/// Sets what a load or a store does: ld and st, .global, .shared, .param or neither, .nc, .v2, .v4,
/// and a type. False for anything else.
[[nodiscard]] bool set_memory_operation(Instruction& instruction);

/// ldmatrix: 2 or 4 matrices of 8 rows of 16 bytes in shared memory. Lane i says where row i % 8 of
/// matrix i / 8 is; lane 4 g + t gets word t of row g of each.
void load_matrices(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// cp.async: data land in shared memory when they are waited for, not before.
void begin_copy(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void close_copies(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void wait_for_copies(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace moesaic::ptx
