#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/idle_time.h"
#include "comm/mpi_handles.h"

namespace moesaic {

/// One exchange of rows over MPI: a message a peer, packed unless its rows lie in a row already.
class MpiExchange final : public RowExchange {
 public:
  /// `comm` must outlive this object. `exchange` counts the exchanges of `comm`.
  MpiExchange(const MpiHandle& comm, std::uint64_t exchange);

  /// Receives what `peer` sends; call it for all peers before the first send.
  void receive(int peer, std::span<std::byte> rows) { requests_.receive(peer, tag_, rows); }
  /// Sends to `peer` the `rows` of the matrix of `send`; if they must be packed, then at `packed`,
  /// which has room for them and stays until the end of the exchange.
  void send(int peer, const RowSend& send, std::span<const std::int32_t> rows, std::byte* packed);

  bool progress() override { return requests_.progress(); }
  [[nodiscard]] std::string missing() const override { return requests_.missing(); }

 private:
  MpiRequests requests_;
  int tag_;
};

}  // namespace moesaic
