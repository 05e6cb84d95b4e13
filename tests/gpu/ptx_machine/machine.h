#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tests/gpu/ptx_machine/program.h"
#include "tests/gpu/ptx_machine/tensor_core.h"

namespace moesaic::ptx {

struct Launch {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned threads = 32;  // of a block, one-dimensional
};

/// What launches did: a report of cost that needs no GPU.
struct Counters {
  std::uint64_t instructions = 0;  // of warps
  std::uint64_t mma = 0;
  std::uint64_t global_bytes = 0;    // that lanes asked for
  std::uint64_t global_sectors = 0;  // of 32 bytes, one instruction at a time
  std::uint64_t shared_passes = 0;
  std::uint64_t shared_conflicts = 0;  // further passes over the banks
};

/// Executes PTX as nvcc writes it, on the CPU: blocks one after the other, warps between barriers.
/// What a kernel must not do is an error: access outside allocations or to what nobody wrote,
/// misaligned access, races of warps in shared memory and of blocks in device memory, barriers that
/// some lanes or warps miss, and any instruction that is not known by its whole name.
class Machine {
 public:
  explicit Machine(const std::string& text) : kernels_(parse_program(text)) {}

  [[nodiscard]] bool has(const std::string& kernel) const { return kernels_.contains(kernel); }
  [[nodiscard]] const Kernel& kernel(const std::string& name) const { return kernels_.at(name); }

  struct Target {
    DeviceMemory& memory;
    int chip;  // 90 for sm_90
    Counters* counters = nullptr;
  };
  /// Throws MachineError with kernel, line, instruction and block.
  void run(const std::string& kernel, const Launch& launch, std::span<const std::byte> parameters,
           const Target& target) const;

 private:
  std::map<std::string, Kernel> kernels_;
};

}  // namespace moesaic::ptx
