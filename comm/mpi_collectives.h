#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/mpi_handles.h"

namespace moesaic {

/// The collective calls of a Communicator over MPI, with deadlines. See communicator.h for what
/// each promises.
class MpiCollectives {
 public:
  /// `comm` must outlive this object.
  MpiCollectives(const MpiHandle& comm, const WaitPolicy& policy) : comm_(comm), policy_(policy) {}

  void barrier();
  void broadcast(std::span<std::byte> data, int root);
  void sum(std::span<float> values);
  void sum(std::span<std::int64_t> values);
  void max(std::span<std::int64_t> values);
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv);
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv);

 private:
  void finish(MPI_Request request, const char* call);
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* call);
  void sum_gathered(std::span<float> values);
  void sum_in_slices(std::span<float> values);

  const MpiHandle& comm_;
  WaitPolicy policy_;
};

}  // namespace moesaic
