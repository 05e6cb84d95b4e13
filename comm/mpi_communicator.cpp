#include "comm/mpi_communicator.h"

#include <array>
#include <cstdlib>

#include "base/buffer.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_rows.h"
#include "comm/pending_exchange.h"
#include "comm/row_send.h"
#include "comm/shared_segment.h"

namespace moesaic {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::unique_ptr<MpiHandle> comm, MpiJob job)
      : comm_(std::move(comm)), job_(job), collectives_(*comm_, job_.policy) {}

  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  [[nodiscard]] std::string transport() const override { return "mpi"; }

  // MPI's split has no deadline of its own: the barrier finds the rank that does not come.
  std::unique_ptr<Communicator> split(int color, int key) override {
    barrier();
    return std::make_unique<MpiCommunicator>(mpi_split(*comm_, color, key), job_);
  }
  std::unique_ptr<Communicator> split_node() override {
    barrier();
    return std::make_unique<MpiCommunicator>(mpi_split_node(*comm_, job_), job_);
  }
  void barrier() override { collectives_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override {
    collectives_.broadcast(data, root);
  }
  void sum(std::span<float> values) override { collectives_.sum(values); }
  void sum(std::span<std::int64_t> values) override { collectives_.sum(values); }
  void max(std::span<std::int64_t> values) override { collectives_.max(values); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    collectives_.all_gather(send, recv);
  }
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv) override {
    collectives_.exchange_counts(send, recv);
  }
  [[nodiscard]] std::unique_ptr<PendingRows> exchange_rows(
      const RowSend& send, std::span<const std::int64_t> recv_counts) override;
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    return allocate_shared_segment(*this, bytes);
  }

 private:
  std::unique_ptr<MpiHandle> comm_;
  MpiJob job_;
  MpiCollectives collectives_;
  std::uint64_t exchanges_ = 0;
  std::array<Buffer<std::byte>, 2> received_;  // of the odd and the even exchanges
  std::array<Buffer<std::byte>, 2> packed_;
};

std::unique_ptr<PendingRows> MpiCommunicator::exchange_rows(
    const RowSend& send, std::span<const std::int64_t> recv_counts) {
  check_row_exchange(send, recv_counts, rank(), size());
  const std::uint64_t exchange = ++exchanges_;
  auto transfer = std::make_unique<MpiExchange>(*comm_, exchange);

  const std::vector<RowPlacement> placements = place_rows(recv_counts, send.row_bytes);
  Buffer<std::byte>& received = received_[exchange & 1];
  received.reserve(placed_bytes(placements));
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + size() - step) % size();
    const RowPlacement& place = placements[static_cast<std::size_t>(peer)];
    transfer->receive(
        peer, {received.data() + place.offset_bytes, static_cast<std::size_t>(place.bytes)});
  }

  Buffer<std::byte>& packed = packed_[exchange & 1];
  packed.reserve(static_cast<std::int64_t>(send.rows.size()) * send.row_bytes);
  const auto rows = rows_of_peers(send);
  for (int step = 1; step < size(); ++step) {  // not all to the same receiver at once
    const int peer = (rank() + step) % size();
    const auto& part = rows[static_cast<std::size_t>(peer)];
    transfer->send(peer, send, part,
                   packed.data() + (part.data() - send.rows.data()) * send.row_bytes);
  }
  return std::make_unique<PendingExchange>(
      PendingExchange::Waiter{rank(), size(), job_.policy}, std::move(transfer),
      received.span().first(static_cast<std::size_t>(placed_bytes(placements))));
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized == 0, ErrorKind::internal, "MPI has been started already");
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_FUNNELED, ErrorKind::resource,
          "this MPI does not allow threads beside the one that calls it");
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

int MpiSession::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiSession::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

void MpiSession::abort(int exit_code) const noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort may return
}

std::unique_ptr<Communicator> make_mpi_communicator(std::unique_ptr<MpiHandle> comm,
                                                    const MpiJob& job) {
  return std::make_unique<MpiCommunicator>(std::move(comm), job);
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession&, const CommOptions& options) {
  auto world = mpi_world();
  const MpiJob job = mpi_job(*world, options);
  return make_mpi_communicator(std::move(world), job);
}

}  // namespace moesaic
