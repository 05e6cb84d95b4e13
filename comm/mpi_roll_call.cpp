#include "comm/mpi_roll_call.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>

#include "base/log.h"

namespace moesaic {
namespace {

constexpr int kRollCallTag = 0;
constexpr int kLinkTag = 1;
/// Links come about in milliseconds, or never.
constexpr auto kLinkPatience = std::chrono::seconds(2);
constexpr std::size_t kHostBytes = 64;

std::unique_ptr<MpiHandle> duplicate(const MpiHandle& comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm.get(), &copy), "MPI_Comm_dup");
  return std::make_unique<MpiHandle>(copy);
}

std::vector<std::string> gather_hosts(const MpiHandle& ranks) {
  using Name = std::array<char, kHostBytes>;
  Name own{};
  host_name().copy(own.data(), own.size() - 1);
  std::vector<Name> all(static_cast<std::size_t>(ranks.size()));
  check_mpi(MPI_Allgather(own.data(), kHostBytes, MPI_CHAR, all.data(), kHostBytes, MPI_CHAR,
                          ranks.get()),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (const Name& name : all) hosts.emplace_back(name.data());
  return hosts;
}

/// A process, with the space in which its number means something.
struct ProcessId {
  std::int64_t rank = 0;
  std::int64_t pid = 0;
  std::int64_t space = 0;
};

std::int64_t process_space() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : 0;
}

}  // namespace

MpiRollCall::MpiRollCall(const MpiHandle& world, const MpiHandle& machine,
                         const CommOptions& options)
    : MpiRollCall(duplicate(world)) {
  find_neighbours(machine);
  if (options.tell && machine.size() < size()) watch_other_machines(machine, options);
}

MpiRollCall::MpiRollCall(std::unique_ptr<MpiHandle> ranks)
    : RollCall(ranks->rank(), gather_hosts(*ranks)),
      ranks_(std::move(ranks)),
      exceptions_(std::uncaught_exceptions()) {}

void MpiRollCall::tell_leaving() noexcept {
  try {
    tell(leaving_report());
  } catch (const std::exception&) {  // the others wait until their launcher ends them
  }
}

MpiRollCall::~MpiRollCall() {
  // A rank that fails by itself says why; the others are not to blame it for ending. Nobody may
  // take these messages: they must not be sent where the job goes on.
  if (std::uncaught_exceptions() > exceptions_) {
    tell_leaving();
    if (watch_ != nullptr) watch_->say_failing();
  }
  for (Told& told : told_) told.let_go();
}

void MpiRollCall::Told::let_go() noexcept {
  int done = 0;
  const int code =
      MPI_Testall(static_cast<int>(sends.size()), sends.data(), &done, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS && done != 0) return;
  for (MPI_Request& send : sends) {
    if (send != MPI_REQUEST_NULL) MPI_Request_free(&send);
  }
  (void)report.release();  // MPI may read it as long as the process lives
}

void MpiRollCall::find_neighbours(const MpiHandle& machine) {
  const ProcessId own{rank(), getpid(), process_space()};
  std::vector<ProcessId> all(static_cast<std::size_t>(machine.size()));
  check_mpi(
      MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, machine.get()),
      "MPI_Allgather");
  for (const ProcessId& process : all) {
    if (process.rank == own.rank || process.space != own.space) continue;
    Descriptor file(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    if (file.is_open()) {
      neighbours_.push_back({static_cast<int>(process.rank), std::move(file)});
    }
  }
}

void MpiRollCall::watch_other_machines(const MpiHandle& machine, const CommOptions& options) {
  PeerLinker linker;
  PeerContact own = linker.contact();
  own.node = rank();
  check_mpi(MPI_Bcast(&own.node, 1, MPI_INT32_T, 0, machine.get()), "MPI_Bcast");
  std::vector<PeerContact> all(static_cast<std::size_t>(size()));
  check_mpi(
      MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, ranks_->get()),
      "MPI_Allgather");
  std::vector<std::int32_t> nodes;
  for (const PeerContact& contact : all) nodes.push_back(contact.node);
  const std::vector<int> peers = linked_ranks(rank(), nodes);
  std::vector<PeerLink> links = linker.connect(rank(), peers, all, kLinkPatience);
  for (const int peer : peers) {
    const auto link = std::ranges::find(links, peer, &PeerLink::rank);
    if (agree(peer, link != links.end())) continue;
    if (link != links.end()) links.erase(link);
    options.tell(LogLevel::debug,
                 fmt::format("no TCP connection to {}, which may end unnoticed", name(peer)));
  }
  if (links.empty()) return;
  watch_ = std::make_unique<PeerWatch>(
      std::move(links), [this, tell = options.tell](int peer, PeerWatch::Loss loss) {
        if (loss == PeerWatch::Loss::has_ended) return tell(LogLevel::error, told_end(peer));
        tell(LogLevel::warning, name(peer) + " does not answer: its host, or the network, is lost");
      });
}

/// Whether both ends of a link have it. All ask their peers in ascending order: the least pair left
/// can always go on.
bool MpiRollCall::agree(int peer, bool has_link) const {
  const int own = has_link ? 1 : 0;
  int other = 0;
  check_mpi(MPI_Sendrecv(&own, 1, MPI_INT, peer, kLinkTag, &other, 1, MPI_INT, peer, kLinkTag,
                         ranks_->get(), MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
  return has_link && other != 0;
}

void MpiRollCall::tell(const RankReport& own) {
  Told& told = told_.emplace_back();
  told.report = std::make_unique<RankReport>(own);
  for (int peer = 0; peer < ranks_->size(); ++peer) {
    if (peer == ranks_->rank() || peer == own.lost_rank) continue;
    MPI_Request& request = told.sends.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(told.report.get(), sizeof own, MPI_BYTE, peer, kRollCallTag, ranks_->get(),
                        &request),
              "MPI_Isend");
  }
}

void MpiRollCall::listen(std::span<RankReport> reports) {
  while (true) {
    int has_come = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kRollCallTag, ranks_->get(), &has_come, &status),
              "MPI_Iprobe");
    if (has_come == 0) return;
    RankReport& report = reports[static_cast<std::size_t>(status.MPI_SOURCE)];
    check_mpi(MPI_Recv(&report, sizeof report, MPI_BYTE, status.MPI_SOURCE, kRollCallTag,
                       ranks_->get(), MPI_STATUS_IGNORE),
              "MPI_Recv");
    report.waiting.back() = '\0';
  }
}

int MpiRollCall::look_for_lost(std::span<const RankReport> reports) {
  for (const Neighbour& neighbour : neighbours_) {
    const RankReport& report = reports[static_cast<std::size_t>(neighbour.rank)];
    if (report.state == RankReport::State::left) continue;
    pollfd file{neighbour.process.number(), POLLIN, 0};
    if (poll(&file, 1, 0) > 0) return neighbour.rank;
  }
  const int lost = watch_ == nullptr ? -1 : watch_->lost_rank();
  const bool has_left =
      lost >= 0 && reports[static_cast<std::size_t>(lost)].state == RankReport::State::left;
  return has_left ? -1 : lost;
}

}  // namespace moesaic
