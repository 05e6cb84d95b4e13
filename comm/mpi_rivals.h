#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace moesaic {

class MpiHandle;

/// Bytes one after the other, in the order of the ranks that they go to or come from.
struct PackedBytes {
  std::span<std::byte> bytes;
  std::span<const std::int64_t> counts;  // [ranks] bytes
};

/// What MPI does by itself with rows that are packed already: rivals to measure beside exchanges,
/// between all ranks of the job. Its calls block without a deadline, as MPI's do; they throw
/// Error{internal} for more bytes than an int counts. MPI must run.
class MpiRivals {
 public:
  /// Collective.
  MpiRivals();
  ~MpiRivals();
  MpiRivals(const MpiRivals&) = delete;
  MpiRivals& operator=(const MpiRivals&) = delete;

  /// MPI_Alltoallv. Collective.
  void all_to_all(const PackedBytes& send, const PackedBytes& receive);
  /// An MPI_Irecv and an MPI_Isend for each rank that bytes come from or go to. Returns when they
  /// are all done.
  void stream(const PackedBytes& send, const PackedBytes& receive);
  /// Sends 8 bytes to and fro `rounds` times; for `first` and `second`, others return at once.
  void ping_pong(int first, int second, int rounds);

 private:
  std::unique_ptr<MpiHandle> comm_;
};

}  // namespace moesaic
