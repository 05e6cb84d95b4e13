#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collectives.h"
#include "comm/mpi_handles.h"

namespace moesaic {

/// What one MPI call moves at most.
inline constexpr std::size_t kMaxMpiPieceBytes = std::size_t{64} << 20;

/// Calls body(piece) for pieces of `values` that one MPI call can move.
template <typename T, typename Body>
void for_each_mpi_piece(std::span<T> values, Body&& body) {
  constexpr std::size_t kPiece = kMaxMpiPieceBytes / sizeof(T);
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    body(values.subspan(first, std::min(kPiece, values.size() - first)));
  }
}

/// Collective calls over MPI, with deadlines.
class MpiCollectives final : public Collectives {
 public:
  /// `comm` must outlive this object.
  MpiCollectives(const MpiHandle& comm, const WaitPolicy& policy) : comm_(comm), policy_(policy) {}

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void sum(std::span<float> values) override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override;

 private:
  void finish(MPI_Request request, const char* call);
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* call);
  void sum_gathered(std::span<float> values);
  template <typename T>
  void add_in_slices(std::span<T> values);

  const MpiHandle& comm_;
  WaitPolicy policy_;
};

}  // namespace moesaic
