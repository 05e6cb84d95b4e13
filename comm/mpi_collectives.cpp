#include "comm/mpi_collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::size_t kMaxPieceBytes = std::size_t{64} << 20;  // what one MPI call moves at most
constexpr std::size_t kShareFromBytes = 16 * 1024;  // from here on the ranks share a sum's work
constexpr int kSliceTag = 1024;                     // row exchanges use tags from 2048 on

/// values[i] += theirs[i]
void add(std::span<float> values, const float* theirs) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += theirs[i];
}

/// Calls body(piece) for pieces of `values` that one MPI call can move.
template <typename T, typename Body>
void for_each_piece(std::span<T> values, Body&& body) {
  constexpr std::size_t kPiece = kMaxPieceBytes / sizeof(T);
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    body(values.subspan(first, std::min(kPiece, values.size() - first)));
  }
}

}  // namespace

void MpiCollectives::finish(MPI_Request request, const char* call) {
  MpiRequests requests(comm_);
  requests.add(request);
  requests.wait(policy_, call);
}

void MpiCollectives::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_.get(), &request), "MPI_Ibarrier");
  finish(request, "barrier");
}

void MpiCollectives::broadcast(std::span<std::byte> data, int root) {
  for_each_piece(data, [&](std::span<std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Ibcast(piece.data(), narrow<int>(piece.size()), MPI_BYTE, root, comm_.get(), &request),
        "MPI_Ibcast");
    finish(request, "broadcast");
  });
}

void MpiCollectives::sum(std::span<float> values) {
  for_each_piece(values, [&](std::span<float> piece) {
    if (piece.size_bytes() < kShareFromBytes) {
      sum_gathered(piece);
    } else {
      sum_in_slices(piece);
    }
  });
}

void MpiCollectives::sum_gathered(std::span<float> values) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  std::vector<float> gathered(values.size() * ranks);  // [ranks, values]
  all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(gathered)));
  std::copy_n(gathered.begin(), values.size(), values.begin());
  for (std::size_t peer = 1; peer < ranks; ++peer) {
    add(values, gathered.data() + peer * values.size());
  }
}

/// Each rank gets all ranks' values of one slice, adds them in rank order, and hands out the sums.
void MpiCollectives::sum_in_slices(std::span<float> values) {
  const int ranks = comm_.size();
  const auto slice = [&](int rank) {
    const auto bound = [&](int r) {
      return values.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks);
    };
    return values.subspan(bound(rank), bound(rank + 1) - bound(rank));
  };
  const std::span<float> mine = slice(comm_.rank());
  std::vector<float> gathered(mine.size() * static_cast<std::size_t>(ranks));  // [ranks, mine]
  const auto part_of = [&](int rank) {
    return std::span(gathered).subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size());
  };
  std::ranges::copy(mine, part_of(comm_.rank()).begin());

  MpiRequests gather(comm_);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == comm_.rank()) continue;
    gather.receive(peer, kSliceTag, std::as_writable_bytes(part_of(peer)));
  }
  for (int step = 1; step < ranks; ++step) {
    const int peer = (comm_.rank() + step) % ranks;
    gather.send(peer, kSliceTag, std::as_bytes(slice(peer)));
  }
  gather.wait(policy_, "sum");

  std::ranges::copy(part_of(0), mine.begin());
  for (int peer = 1; peer < ranks; ++peer) add(mine, part_of(peer).data());
  MpiRequests spread(comm_);
  for (int step = 1; step < ranks; ++step) {
    const int to = (comm_.rank() + step) % ranks;
    const int from = (comm_.rank() + ranks - step) % ranks;
    spread.receive(from, kSliceTag + 1, std::as_writable_bytes(slice(from)));
    spread.send(to, kSliceTag + 1, std::as_bytes(mine));
  }
  spread.wait(policy_, "sum");
}

void MpiCollectives::reduce(std::span<std::int64_t> values, MPI_Op op, const char* call) {
  for_each_piece(values, [&](std::span<std::int64_t> piece) {
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
