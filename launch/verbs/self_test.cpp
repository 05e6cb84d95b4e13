#include "launch/verbs/self_test.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "base/buffer.h"
#include "base/error.h"
#include "kernels/kernel_table.h"
#include "kernels/sum_order.h"
#include "kernels/whole_product.h"

namespace moesaic {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// What rank `sender` writes into word `word` of row `row` for rank `receiver`.
std::uint64_t pattern(int sender, int receiver, std::int64_t row, std::int64_t word) {
  const auto mix = static_cast<std::uint64_t>(sender) << 48 ^
                   static_cast<std::uint64_t>(receiver) << 32 ^
                   static_cast<std::uint64_t>(row) << 16 ^ static_cast<std::uint64_t>(word);
  return mix * 0x9e3779b97f4a7c15U;
}

class Exchange {
 public:
  Exchange(Communicator& comm, std::int64_t rows_per_peer, std::int64_t row_bytes)
      : comm_(comm),
        rows_per_peer_(rows_per_peer),
        words_(row_bytes / 8),
        data_(comm.size() * rows_per_peer * words_),
        counts_(static_cast<std::size_t>(comm.size()), rows_per_peer) {
    counts_[static_cast<std::size_t>(comm.rank())] = 0;
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (std::int64_t row = 0; row < rows_per_peer; ++row) {
        const std::int64_t at = peer * rows_per_peer + row;
        if (peer != comm.rank()) rows_.push_back(narrow<std::int32_t>(at));
        for (std::int64_t word = 0; word < words_; ++word) {
          data_.data()[at * words_ + word] = pattern(comm.rank(), peer, row, word);
        }
      }
    }
  }

  [[nodiscard]] std::int64_t bytes_sent() const {
    return static_cast<std::int64_t>(rows_.size()) * words_ * 8;
  }

  /// One exchange; its time.
  double run() {
    const auto start = Clock::now();
    PendingRows pending =
        comm_.exchange_rows({.base = reinterpret_cast<const std::byte*>(data_.data()),
                             .row_bytes = words_ * 8,
                             .stride_bytes = words_ * 8,
                             .rows = rows_,
                             .counts = counts_,
                             .label = RowLabel{}.at("self-test")},
                            {});
    const std::span<const std::byte* const> received = pending.wait().rows;
    const double time = microseconds_since(start);
    check(received);
    return time;
  }

 private:
  void check(std::span<const std::byte* const> received) const {
    require(received.size() == rows_.size(), ErrorKind::peer,
            "self-test: {} rows arrived instead of {}", received.size(), rows_.size());
    std::size_t next = 0;
    for (int sender = 0; sender < comm_.size(); ++sender) {
      for (std::int64_t row = 0; sender != comm_.rank() && row < rows_per_peer_; ++row) {
        const std::byte* bytes = received[next++];
        for (std::int64_t word = 0; word < words_; ++word, bytes += 8) {
          std::uint64_t value = 0;
          std::memcpy(&value, bytes, sizeof value);
          require(value == pattern(sender, comm_.rank(), row, word), ErrorKind::peer,
                  "self-test: word {} of row {} from rank {} is wrong", word, row, sender);
        }
      }
    }
  }

  Communicator& comm_;
  std::int64_t rows_per_peer_;
  std::int64_t words_;
  Buffer<std::uint64_t> data_;  // [peer][row][word]
  std::vector<std::int32_t> rows_;
  std::vector<std::int64_t> counts_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A product with odd sizes: rows that fill no block, columns that fill no panel, a K that is no
// multiple of a step.
constexpr std::int64_t kRows = 13;
constexpr std::int64_t kColumns = 37;
constexpr std::int64_t kDepth = 203;

Layout layout_for(const GemmKernel& kernel) {
  const Format format = kernel.format;
  if (kernel.int4_activations == Int4Activations::int8) return {.format = format, .group = 128};
  const bool grouped = format == Format::int4_group || format == Format::fp8_block;
  return {.format = format, .group = grouped ? 32 : 0};
}

std::vector<float> multiply_numbers(const GemmKernel& kernel) {
  const OwnedMatrix weights =
      pack_matrix(layout_for(kernel), draw_test_numbers(kColumns * kDepth, 7), kColumns, kDepth);
  const std::vector<float> input = draw_test_numbers(kRows * kDepth, 7);
  std::vector<const std::byte*> rows;
  for (std::int64_t row = 0; row < kRows; ++row) {
    rows.push_back(reinterpret_cast<const std::byte*>(input.data() + row * kDepth));
  }
  const Buffer<float> out =
      multiply(kernel, {.rows = rows.data(), .num_rows = kRows, .depth = kDepth}, weights.matrix);
  return {out.data(), out.data() + out.size()};
}

/// In the tile order the bits must agree; avx512_bf16 sums in an order of its own, and where scalar
/// rounds code times scale to bf16 it does not.
double allowed_error(const GemmKernel& kernel) {
  if (has_tile_order(kernel.isa)) return 0;
  const bool rounds = kernel.format == Format::fp8_block || kernel.format == Format::int4_group;
  return rounds ? 0x1p-8 : 1e-5;
}

}  // namespace

std::vector<float> draw_test_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random()) / 4294967296.0F - 0.5F;
  return numbers;
}

double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

ExchangeTest test_exchange(Communicator& comm, std::int64_t rows_per_peer, std::int64_t row_bytes) {
  constexpr int kRepeats = 11;
  Exchange exchange(comm, rows_per_peer, row_bytes);
  std::vector<double> exchanges;
  std::vector<double> barriers;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = Clock::now();
    comm.barrier();
    barriers.push_back(microseconds_since(start));
    exchanges.push_back(exchange.run());
  }
  return {.microseconds = median(exchanges),
          .bytes_per_rank = exchange.bytes_sent(),
          .barrier_microseconds = median(barriers)};
}

std::vector<KernelTest> test_kernels() {
  std::vector<KernelTest> tests;
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (!is_usable(*kernel)) continue;
    const std::vector<float> truth =
        multiply_numbers(find_gemm_kernel(Isa::scalar, kernel->format, kernel->int4_activations));
    const std::vector<float> out = multiply_numbers(*kernel);
    tests.push_back(
        {.isa = kernel->isa,
         .kernel = kernel->name,
         .same_bits = std::memcmp(truth.data(), out.data(), out.size() * sizeof(float)) == 0,
         .relative_error = relative_l2(out, truth),
         .allowed_error = allowed_error(*kernel)});
  }
  return tests;
}

}  // namespace moesaic
