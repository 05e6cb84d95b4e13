#pragma once

#include <memory>
#include <vector>

#include "comm/mpi_handles.h"
#include "comm/row_transport.h"

namespace moesaic {

/// Rows over MPI: a message a peer, packed unless its rows lie in a row already.
class MpiRows final : public RowCarrier {
 public:
  /// For `peers`, ranks of `comm`, which must outlive this.
  MpiRows(const MpiHandle& comm, std::vector<int> peers) : comm_(comm), peers_(std::move(peers)) {}
  [[nodiscard]] std::unique_ptr<RowPart> make_part() override;

 private:
  const MpiHandle& comm_;
  std::vector<int> peers_;
};

}  // namespace moesaic
