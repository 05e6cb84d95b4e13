#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu_features.h"
#include "src/base/thread_pool.h"

namespace moesaic {

/// Loops that do nothing but what limits a product: multiply-adds on registers, and reads. What
/// they reach is the roof against which benchmarks compare.
struct RoofLoops {
  Isa isa;
  std::int64_t flops_per_round;  // a multiply-add counts as two
  /// `rounds` rounds of independent multiply-adds on registers. The result means nothing.
  float (*multiply_add)(std::int64_t rounds) noexcept;
  /// Reads `bytes` (a multiple of 1024) once, asking for the lines `ahead` bytes further on if that
  /// is not 0. The result means nothing.
  std::uint64_t (*read)(const std::byte* data, std::int64_t bytes, std::int64_t ahead) noexcept;
};

[[nodiscard]] const RoofLoops& find_roof_loops(Isa isa) noexcept;

/// Keeps all threads busy with multiply-adds of `isa`; returns the floating-point operations done,
/// about `flops` of them.
double run_multiply_adds(Isa isa, double flops, ThreadPool& pool);

/// Reads `data` once with all threads, `ahead` as above, by the widest loads that this CPU has.
void run_reads(std::span<const std::byte> data, std::int64_t ahead, ThreadPool& pool);

}  // namespace moesaic
