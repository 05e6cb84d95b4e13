#include "comm/mpi_rivals.h"

#include <array>
#include <vector>

#include "base/error.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_handles.h"

namespace moesaic {
namespace {

constexpr int kTag = 1;

/// Counts and places of bytes as MPI takes them.
struct IntCounts {
  explicit IntCounts(std::span<const std::int64_t> bytes) {
    std::int64_t next = 0;
    for (const std::int64_t count : bytes) {
      counts.push_back(narrow<int>(count));
      places.push_back(narrow<int>(next));
      next += count;
    }
  }
  std::vector<int> counts;
  std::vector<int> places;
};

}  // namespace

MpiRivals::MpiRivals() : comm_(mpi_world()) {}
MpiRivals::~MpiRivals() = default;

void MpiRivals::all_to_all(const PackedBytes& send, const PackedBytes& receive) {
  const IntCounts sent(send.counts);
  const IntCounts received(receive.counts);
  check_mpi(MPI_Alltoallv(send.bytes.data(), sent.counts.data(), sent.places.data(), MPI_BYTE,
                          receive.bytes.data(), received.counts.data(), received.places.data(),
                          MPI_BYTE, comm_->get()),
            "MPI_Alltoallv");
}

void MpiRivals::stream(const PackedBytes& send, const PackedBytes& receive) {
  const IntCounts sent(send.counts);
  const IntCounts received(receive.counts);
  std::vector<MPI_Request> requests;
  const auto for_each = [&](const PackedBytes& packed, const IntCounts& ints, auto&& call) {
    for (std::size_t peer = 0; peer < ints.counts.size(); ++peer) {
      if (ints.counts[peer] == 0) continue;
      std::byte* const first = packed.bytes.data() + ints.places[peer];
      check_mpi(call(first, ints.counts[peer], static_cast<int>(peer), &requests.emplace_back()),
                "MPI_Isend or MPI_Irecv");
    }
  };
  for_each(receive, received, [&](std::byte* first, int bytes, int peer, MPI_Request* request) {
    return MPI_Irecv(first, bytes, MPI_BYTE, peer, kTag, comm_->get(), request);
  });
  for_each(send, sent, [&](const std::byte* first, int bytes, int peer, MPI_Request* request) {
    return MPI_Isend(first, bytes, MPI_BYTE, peer, kTag, comm_->get(), request);
  });
  check_mpi(MPI_Waitall(narrow<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
}

void MpiRivals::ping_pong(int first, int second, int rounds) {
  const int rank = comm_->rank();
  if (rank != first && rank != second) return;
  const int peer = rank == first ? second : first;
  std::array<std::byte, 8> data{};
  const auto send = [&] {
    check_mpi(MPI_Send(data.data(), data.size(), MPI_BYTE, peer, kTag, comm_->get()), "MPI_Send");
  };
  const auto receive = [&] {
    check_mpi(
        MPI_Recv(data.data(), data.size(), MPI_BYTE, peer, kTag, comm_->get(), MPI_STATUS_IGNORE),
        "MPI_Recv");
  };
  for (int round = 0; round < rounds; ++round) {
    if (rank == first) send();
    receive();
    if (rank == second) send();
  }
}

}  // namespace moesaic
