#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/cpu_features.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

// Loops that do nothing but what limits a product: multiply-adds on registers, and reads of memory.
// What they reach is the roof against which benchmarks compare.

/// Multiply-adds of one instruction, none waiting for another.
struct MultiplyLoop {
  const char* instruction;            // "VPDPBUSD zmm"
  std::int64_t operations_per_round;  // a multiply-add counts as two
  /// Does `rounds` rounds. The result means nothing.
  float (*run)(std::int64_t rounds) noexcept;
};

/// The loop of the instruction that does the work of the kernel of this instruction set and format.
/// Runs where that kernel does.
[[nodiscard]] const MultiplyLoop& find_multiply_loop(Isa isa, Format format) noexcept;
[[nodiscard]] const MultiplyLoop& find_multiply_loop(const GemmKernel& kernel) noexcept;

/// Keeps all threads busy with `loop`; returns the operations done, about `operations` of them.
double run_multiply_adds(const MultiplyLoop& loop, double operations, ThreadPool& pool);

/// How a loop that reads asks for memory before it gets there.
struct Prefetch {
  std::int64_t bytes_ahead = 0;  // 0: it leaves that to the CPU
  bool to_l1 = true;             // or only to L2
};

/// Reads `data` (a multiple of 1024 bytes, and prefetched memory behind it) once with all threads,
/// by the widest loads that this CPU has.
void run_reads(std::span<const std::byte> data, const Prefetch& prefetch, ThreadPool& pool);

}  // namespace moesaic
