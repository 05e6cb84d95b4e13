#include "comm/mpi_communicator.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>

#include "base/buffer.h"
#include "comm/far_rows.h"
#include "comm/memory_board.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_messages.h"
#include "comm/node_map.h"
#include "comm/row_buffers.h"
#include "comm/shared_segment.h"
#include "comm/transport_communicator.h"

namespace moesaic {
namespace {

std::vector<int> numbers_below(int end) {
  std::vector<int> numbers(static_cast<std::size_t>(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

class MpiGroup final : public RankGroup {
 public:
  MpiGroup(std::unique_ptr<MpiHandle> comm, const MpiJob& job)
      : comm_(std::move(comm)),
        job_(for_group(job, *comm_)),
        nodes_(numbers_below(comm_->size())),
        board_memory_(MemoryBoard::bytes_needed(1, comm_->size())),
        board_({std::shared_ptr<void>(), board_memory_.data()},
               {0, 1, {comm_->rank()}, comm_->size()}, job_.policy) {}

  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  [[nodiscard]] std::string transport() const override { return "mpi"; }
  [[nodiscard]] std::unique_ptr<Collectives> make_collectives() const {
    return std::make_unique<MpiCollectives>(*comm_, job_.policy);
  }
  [[nodiscard]] std::unique_ptr<RowTransport> make_rows();

  // MPI's split has no deadline of its own: the barrier finds the rank that does not come.
  std::unique_ptr<Communicator> split(Communicator& self, int color, int key) override {
    self.barrier();
    return make_mpi_communicator(mpi_split(*comm_, color, key), job_);
  }
  std::unique_ptr<Communicator> split_node(Communicator& self) override {
    self.barrier();
    return sharing_memory(make_mpi_communicator(mpi_split_node(*comm_, job_), job_));
  }
  std::shared_ptr<SharedMemory> allocate_shared(Communicator& self, std::int64_t bytes) override {
    return allocate_shared_segment(self, bytes);
  }

 private:
  std::unique_ptr<MpiHandle> comm_;
  MpiJob job_;
  NodeMap nodes_;  // each rank is a node of its own
  ByteBuffer board_memory_;
  MemoryBoard board_;
  ProcessRowBuffers::Memory memory_;
};

std::unique_ptr<RowTransport> MpiGroup::make_rows() {
  RowTransport::Ways ways{
      .pool = std::make_unique<RowPool>(std::make_unique<ProcessRowBuffers>(memory_)),
      .parts = {},
      .have_messages = size() > 1,
      .check_rows = job_.options.check_rows};
  ways.parts.push_back(far_rows({.nodes = nodes_,
                                 .board = board_,
                                 .buffers = ways.pool->buffers(),
                                 .make_messages = mpi_message_maker(*comm_)}));
  return std::make_unique<RowTransport>(Waiter{rank(), size(), job_.policy}, std::move(ways));
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
  // MPI writes to a peer that has just died: that is an error, and not the end of this rank too.
  if (size() > 1) std::signal(SIGPIPE, SIG_IGN);
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
  // MPI_Abort asks a daemon, which may be cut off from the rest of the job, and answers never then.
  try {
    std::thread([exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(exit_code);
    }).detach();
  } catch (const std::exception&) {  // no more threads, or memory: then without a watch
  }
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort may return
}

std::unique_ptr<Communicator> make_mpi_communicator(std::unique_ptr<MpiHandle> comm,
                                                    const MpiJob& job) {
  auto group = std::make_unique<MpiGroup>(std::move(comm), job);
  auto collectives = group->make_collectives();
  auto rows = group->make_rows();
  return std::make_unique<TransportCommunicator>(
      TransportCommunicator::Parts{.group = std::move(group),
                                   .collectives = std::move(collectives),
                                   .rows = std::move(rows),
                                   .idle = job.idle});
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession&, const CommOptions& options) {
  auto world = mpi_world();
  const MpiJob job = mpi_job(*world, options);
  return make_mpi_communicator(std::move(world), job);
}

}  // namespace moesaic
