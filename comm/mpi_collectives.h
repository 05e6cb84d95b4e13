#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collectives.h"
#include "comm/mpi_handles.h"

namespace moesaic {

/// Collective calls over MPI, with deadlines.
class MpiCollectives final : public Collectives {
 public:
  /// `comm` must outlive this object.
  MpiCollectives(const MpiHandle& comm, const WaitPolicy& policy);

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override;

 private:
  void finish(MPI_Request request, const char* call);
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* call);

  const MpiHandle& comm_;
  WaitPolicy policy_;
  Meeting meeting_;  // the last call
};

}  // namespace moesaic
