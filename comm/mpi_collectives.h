#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collectives.h"
#include "comm/mpi_handles.h"
#include "comm/operation.h"

namespace moesaic {

/// Counts by MPI_Ialltoall.
class MpiCounts final : public Operation {
 public:
  /// `comm` must outlive this object.
  MpiCounts(const MpiHandle& comm, const WaitPolicy& policy)
      : Operation({comm.rank(), comm.size(), policy}, "start_counts"),
        comm_(comm),
        requests_(comm) {}
  void start(std::uint64_t number, std::span<const std::int64_t> send,
             std::span<std::int64_t> recv);
  [[nodiscard]] std::string missing() const override { return requests_.missing(); }

 private:
  bool progress() override { return requests_.progress(); }

  const MpiHandle& comm_;
  MpiRequests requests_;
};

/// Collective calls over MPI, with deadlines.
class MpiCollectives final : public Collectives {
 public:
  /// `comm` must outlive this object.
  MpiCollectives(const MpiHandle& comm, const WaitPolicy& policy);

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void sum(std::span<float> values) override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override;
  [[nodiscard]] PendingCounts start_counts(std::span<const std::int64_t> send,
                                           std::span<std::int64_t> recv) override;

 private:
  [[nodiscard]] std::unique_ptr<MpiCounts> make_counts() const;
  void finish(MPI_Request request, const char* call);
  void reduce(std::span<std::int64_t> values, MPI_Op op, const char* call);
  void sum_gathered(std::span<float> values);
  void sum_in_slices(std::span<float> values);

  const MpiHandle& comm_;
  WaitPolicy policy_;
  OperationRing<MpiCounts> counts_;
};

}  // namespace moesaic
