#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"

namespace moesaic {

/// The tables of vector kernels that this CPU can execute; scalar is the first.
inline std::vector<const VectorKernels*> runnable_vector_kernels() {
  std::vector<const VectorKernels*> kernels;
  for (const VectorKernels* table : all_vector_kernels()) {
    if (is_supported(table->isa)) kernels.push_back(table);
  }
  return kernels;
}

/// The attention kernels that this CPU can execute; scalar's are the first.
inline std::vector<const AttentionKernel*> runnable_attention_kernels() {
  std::vector<const AttentionKernel*> kernels;
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    if (is_supported(kernel->isa)) kernels.push_back(kernel);
  }
  return kernels;
}

/// The first element whose bits differ, or -1. Any NaN equals any other: which operand's payload
/// survives is the compiler's choice.
inline std::int64_t first_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    if (!both_nan && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

inline std::vector<float> normal_numbers(std::int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = distribution(generator);
  return numbers;
}

}  // namespace moesaic
