#pragma once

#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "comm/comm_options.h"
#include "comm/mpi_handles.h"
#include "comm/peer_watch.h"
#include "comm/roll_call.h"

namespace moesaic {

/// RollCall of a job of MPI processes: reports are messages of a communicator of their own, and the
/// ranks of one machine see each other's processes. Between machines a connection breaks.
class MpiRollCall final : public RollCall {
 public:
  /// Collective over `world`; `machine` are those of its ranks that MPI can give memory in common
  /// with this one, whatever nodes `options` pretend. Other machines are watched if `options` have
  /// `tell`, on all ranks or none.
  MpiRollCall(const MpiHandle& world, const MpiHandle& machine, const CommOptions& options);
  ~MpiRollCall() override;

 private:
  /// A process of this machine, as a file descriptor that becomes readable when it ends.
  struct Neighbour {
    int rank = 0;
    Descriptor process{};
  };
  /// What has been sent to the other ranks.
  struct Told {
    std::unique_ptr<RankReport> report{};
    std::vector<MPI_Request> sends{};
    /// Frees what MPI does not need any more.
    void let_go() noexcept;
  };
  explicit MpiRollCall(std::unique_ptr<MpiHandle> ranks);
  void tell_leaving() noexcept;
  void find_neighbours(const MpiHandle& machine);
  void watch_other_machines(const MpiHandle& machine, const CommOptions& options);
  [[nodiscard]] bool agree(int peer, bool has_link) const;
  void tell(const RankReport& own) override;
  void listen(std::span<RankReport> reports) override;
  [[nodiscard]] int look_for_lost(std::span<const RankReport> reports) override;

  std::unique_ptr<MpiHandle> ranks_;
  int exceptions_;  // in flight when this was made
  std::vector<Neighbour> neighbours_;
  std::vector<Told> told_;
  std::unique_ptr<PeerWatch> watch_{};  // none: there is nobody to watch
};

}  // namespace moesaic
