#include "comm/mpi_handles.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moesaic {
namespace {

/// Whose fault an error of MPI is: out of memory, a call that is wrong, or else another rank's.
ErrorKind kind_of(int code) {
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  switch (error_class) {
    case MPI_ERR_NO_MEM:
      return ErrorKind::resource;
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COMM:
    case MPI_ERR_COUNT:
    case MPI_ERR_GROUP:
    case MPI_ERR_OP:
    case MPI_ERR_RANK:
    case MPI_ERR_REQUEST:
    case MPI_ERR_ROOT:
    case MPI_ERR_TAG:
    case MPI_ERR_TYPE:
      return ErrorKind::internal;
    default:
      return ErrorKind::peer;
  }
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(kind_of(code), "{}: {}", call, text.data());
}

MpiHandle::MpiHandle(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

MpiHandle::~MpiHandle() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // Freeing is collective: a rank that leaves because of an error must not wait for the others.
  if (finalized == 0 && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

MpiRequests::MpiRequests(const MpiHandle& comm) : comm_(&comm) {
  const std::size_t usual = 2 * static_cast<std::size_t>(comm.size());  // to each and from each
  requests_.reserve(usual);
  infos_.reserve(usual);
  done_.reserve(usual);
  statuses_.reserve(usual);
}

MpiRequests::~MpiRequests() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || infos_[i].kind == Kind::collective) continue;
    if (infos_[i].kind == Kind::receive) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void MpiRequests::add(MPI_Request request, Info info) {
  requests_.push_back(request);
  infos_.push_back(info);
}

void MpiRequests::add(MPI_Request request) {
  add(request, {.kind = Kind::collective, .peer = -1, .bytes = 0});
}

std::size_t MpiRequests::receive(int peer, int tag, std::span<std::byte> room) {
  const int bytes = narrow<int>(room.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(room.data(), bytes, MPI_BYTE, peer, tag, comm_->get(), &request),
            "MPI_Irecv");
  add(request, {.kind = Kind::receive, .peer = peer, .bytes = bytes});
  return requests_.size() - 1;
}

void MpiRequests::send(int peer, int tag, std::span<const std::byte> data) {
  const int bytes = narrow<int>(data.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data.data(), bytes, MPI_BYTE, peer, tag, comm_->get(), &request),
            "MPI_Isend");
  add(request, {.kind = Kind::send, .peer = peer, .bytes = bytes});
}

void MpiRequests::check_received(Info& info, const MPI_Status& status) const {
  if (info.kind != Kind::receive) return;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  info.received_bytes = bytes;
  require(status.MPI_ERROR != MPI_ERR_TRUNCATE, ErrorKind::peer,
          "rank {} of {}: at most {} bytes were expected of rank {}, which sent more",
          comm_->rank(), comm_->size(), info.bytes, info.peer);
}

bool MpiRequests::progress() {
  if (requests_.empty()) return true;
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  for (MPI_Status& status : statuses_) status.MPI_ERROR = MPI_SUCCESS;
  int num_done = 0;
  const int code = MPI_Testsome(narrow<int>(requests_.size()), requests_.data(), &num_done,
                                done_.data(), statuses_.data());
  if (num_done == MPI_UNDEFINED) return true;
  for (int i = 0; i < num_done; ++i) {
    const auto request = static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]);
    check_received(infos_[request], statuses_[static_cast<std::size_t>(i)]);
  }
  check_mpi(code, "MPI_Testsome");
  return std::ranges::all_of(requests_, [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
}

RankList MpiRequests::unsent() const {
  RankList receivers;
  int last = -1;  // a peer may get several messages
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || infos_[i].kind != Kind::send) continue;
    if (infos_[i].peer != last) receivers.add(infos_[i].peer);
    last = infos_[i].peer;
  }
  return receivers;
}

void MpiRequests::wait(const WaitPolicy& policy, const char* call, const Meeting& meeting) {
  wait_or_fail(
      policy, [&] { return progress(); },
      [&] {
        Awaited all{.text = fmt::format("rank {} of {}: {}: waiting for all ranks to join",
                                        comm_->rank(), comm_->size(), call),
                    .meeting = meeting};
        for (int rank = 0; rank < comm_->size(); ++rank) all.ranks.push_back(rank);
        return all;
      });
}

}  // namespace moesaic
