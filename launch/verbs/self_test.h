#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cpu_features.h"

namespace moesaic {

/// Rows that every rank sent to every other one.
struct ExchangeTest {
  double microseconds = 0;          // of one exchange, the median
  std::int64_t bytes_per_rank = 0;  // that left a rank in one exchange
  double barrier_microseconds = 0;

  [[nodiscard]] double gigabytes_per_second() const {  // leaving one rank
    return microseconds > 0 ? static_cast<double>(bytes_per_rank) / microseconds / 1e3 : 0;
  }
};

/// Sends rows of `row_bytes` (a multiple of 8) from each rank to each other one, several times, and
/// compares what arrives. Throws Error{peer} naming the sender if a byte is wrong. Collective.
[[nodiscard]] ExchangeTest test_exchange(Communicator& comm, std::int64_t rows_per_peer,
                                         std::int64_t row_bytes);

/// A product on one instruction set against the same in the tile order of `scalar`.
struct KernelTest {
  Isa isa = Isa::scalar;
  std::string kernel;         // "avx512/bf16"
  bool same_bits = false;     // as scalar
  double relative_error = 0;  // L2, against scalar
  double allowed_error = 0;   // if bits may differ
  [[nodiscard]] bool passed() const { return same_bits || relative_error < allowed_error; }
};

/// Numbers of [-0.5, 0.5), the same everywhere.
[[nodiscard]] std::vector<float> draw_test_numbers(std::int64_t count, unsigned seed);
/// |a - b| / |b|, of as many.
[[nodiscard]] double relative_l2(const std::vector<float>& a, const std::vector<float>& b);

/// Every kernel that this CPU runs, on one small product.
[[nodiscard]] std::vector<KernelTest> test_kernels();

}  // namespace moesaic
