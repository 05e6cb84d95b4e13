#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/wait.h"

/// Inside comm/ only: what the transports over MPI share.
namespace moesaic {

/// Throws Error with MPI's own text unless `code`, the result of `call`, is MPI_SUCCESS: of kind
/// resource if memory is short, internal if the call was wrong, else peer.
void check_mpi(int code, const char* call);

/// Owns an MPI communicator; its errors come back as codes.
class MpiHandle {
 public:
  /// Takes `comm` over.
  explicit MpiHandle(MPI_Comm comm);
  ~MpiHandle();
  MpiHandle(const MpiHandle&) = delete;
  MpiHandle& operator=(const MpiHandle&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

/// Non-blocking MPI operations under way. What is not finished when this object goes is given up.
class MpiRequests {
 public:
  /// `comm` must outlive this object.
  explicit MpiRequests(const MpiHandle& comm);
  ~MpiRequests();
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  /// Forgets what is done, to be used again.
  void clear() noexcept {
    requests_.clear();
    infos_.clear();
  }
  /// A message of any length that fits `room`; returns its number. As that of send() it is no
  /// longer than an int counts, else Error{internal}.
  std::size_t receive(int peer, int tag, std::span<std::byte> room);
  /// Of such a message: its length, or -1 as long as it has not come.
  [[nodiscard]] std::int64_t received_bytes(std::size_t number) const {
    return infos_[number].received_bytes;
  }
  void send(int peer, int tag, std::span<const std::byte> data);
  /// Takes over the request of a collective operation.
  void add(MPI_Request request);

  /// Lets MPI work; returns whether all is done. Throws Error{peer} if a message is longer than its
  /// room.
  bool progress();
  /// Who has not taken what was sent.
  [[nodiscard]] RankList unsent() const;
  /// Returns when all is done, or throws Error{peer} at the deadline; `call` is for the message. Of
  /// collective operations.
  void wait(const WaitPolicy& policy, const char* call, const Meeting& meeting);

 private:
  enum class Kind { receive, send, collective };
  struct Info {
    Kind kind;
    int peer;
    int bytes;
    int received_bytes = -1;
  };
  void add(MPI_Request request, Info info);
  void check_received(Info& info, const MPI_Status& status) const;

  const MpiHandle* comm_;
  std::vector<MPI_Request> requests_;  // MPI_REQUEST_NULL once done
  std::vector<Info> infos_;            // [requests]
  std::vector<int> done_;              // scratch of progress()
  std::vector<MPI_Status> statuses_;
};

}  // namespace moesaic
