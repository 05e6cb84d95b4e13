#include "comm/mpi_collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::size_t kMaxPieceBytes = std::size_t{64} << 20;  // what one MPI call moves at most

/// Calls body(piece) for pieces of `values` that one MPI call can move.
template <typename T, typename Body>
void for_each_mpi_piece(std::span<T> values, Body&& body) {
  constexpr std::size_t kPiece = kMaxPieceBytes / sizeof(T);
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    body(values.subspan(first, std::min(kPiece, values.size() - first)));
  }
}

}  // namespace

MpiCollectives::MpiCollectives(const MpiHandle& comm, const WaitPolicy& policy)
    : comm_(comm), policy_(policy), meeting_{.group = policy.group} {}

void MpiCollectives::finish(MPI_Request request, const char* call) {
  ++meeting_.number;
  MpiRequests requests(comm_);
  requests.add(request);
  requests.wait(policy_, call, meeting_);
}

void MpiCollectives::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_.get(), &request), "MPI_Ibarrier");
  finish(request, "barrier");
}

void MpiCollectives::broadcast(std::span<std::byte> data, int root) {
  for_each_mpi_piece(data, [&](std::span<std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Ibcast(piece.data(), narrow<int>(piece.size()), MPI_BYTE, root, comm_.get(), &request),
        "MPI_Ibcast");
    finish(request, "broadcast");
  });
}

void MpiCollectives::reduce(std::span<std::int64_t> values, MPI_Op op, const char* call) {
  for_each_mpi_piece(values, [&](std::span<std::int64_t> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, piece.data(), narrow<int>(piece.size()), MPI_INT64_T, op,
                             comm_.get(), &request),
              "MPI_Iallreduce");
    finish(request, call);
  });
}

void MpiCollectives::sum(std::span<std::int64_t> values) {
  reduce(values, MPI_SUM, "sum");
}

void MpiCollectives::max(std::span<std::int64_t> values) {
  reduce(values, MPI_MAX, "max");
}

void MpiCollectives::all_gather(std::span<const std::byte> send, std::span<std::byte> recv) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  require(recv.size() == send.size() * ranks, ErrorKind::internal,
          "all_gather: {} bytes for {} ranks with {} each", recv.size(), ranks, send.size());
  const auto gather = [&](std::span<const std::byte> piece, std::byte* to) {
    const int bytes = narrow<int>(piece.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Iallgather(piece.data(), bytes, MPI_BYTE, to, bytes, MPI_BYTE, comm_.get(), &request),
        "MPI_Iallgather");
    finish(request, "all_gather");
  };
  const std::size_t piece_bytes = kMaxPieceBytes / ranks;
  if (send.size() <= piece_bytes) return gather(send, recv.data());
  std::vector<std::byte> gathered(piece_bytes * ranks);  // [ranks, piece]
  for (std::size_t first = 0; first < send.size(); first += piece_bytes) {
    const std::size_t bytes = std::min(piece_bytes, send.size() - first);
    gather(send.subspan(first, bytes), gathered.data());
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      std::memcpy(recv.data() + peer * send.size() + first, gathered.data() + peer * bytes, bytes);
    }
  }
}

}  // namespace moesaic
