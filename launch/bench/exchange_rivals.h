#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "comm/mpi_rivals.h"
#include "launch/bench/exchange_loads.h"

namespace moesaic {

/// Rows that travel, where they lie.
struct RowMatrix {
  const std::byte* base = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t stride_bytes = 0;
};

/// What else could move the rows of an exchange there and its results back: copies, and MPI by
/// itself. It moves as many rows as an exchange does, of the same matrices; which ones does not
/// matter. All ranks make the same calls.
class ExchangeRivals {
 public:
  /// `rows` of this rank's tokens and `results` of its experts. All outlive this.
  ExchangeRivals(MpiRivals& mpi, const ExchangeLoads& loads, int rank,
                 const std::array<RowMatrix, 2>& rows_and_results);

  /// Copies what this rank sends to others of its node, row by row, into memory of its own.
  void copy_near();
  /// Packs what it sends to all, and MPI_Alltoallv.
  void all_to_all();
  /// Sends the bytes between nodes, a message for each pair of ranks that have any.
  void stream_far();

  [[nodiscard]] std::int64_t near_bytes() const noexcept { return near_bytes_; }
  /// The most bytes of one call of MPI.
  [[nodiscard]] std::int64_t most_bytes() const noexcept {
    return std::max(packed_.size(), received_.size());
  }

 private:
  /// Rows there, or results back.
  struct Leg {
    RowMatrix matrix;
    std::vector<std::int64_t> to, from;          // [ranks] bytes
    std::vector<std::int64_t> far_to, far_from;  // [ranks] bytes between nodes
  };

  void count(const ExchangeLoads& loads, int peer);
  void make_room();
  std::byte* copy(const RowMatrix& matrix, std::int64_t bytes, std::byte* to) const;

  MpiRivals* mpi_;
  int rank_;
  std::vector<bool> is_near_;  // [ranks] others of this node
  std::array<Leg, 2> legs_;
  std::int64_t near_bytes_ = 0;
  Buffer<std::byte> packed_;
  Buffer<std::byte> received_;
};

}  // namespace moesaic
