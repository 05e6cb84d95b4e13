#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/interruption.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "comm/mpi_communicator.h"
#include "kernels/grouped_gemm.h"
#include "launch/job/binding.h"
#include "launch/job/rank_info.h"
#include "launch/options/options.h"
#include "src/model/precision.h"
#include "src/parallel/process_grid.h"

namespace moesaic {

/// What a verb runs in: the ranks, their transports, instruction set and threads, as the command
/// asks for them.
class Runtime {
 public:
  /// Collective. Throws AgreedError, on all ranks, for what the launch makes impossible.
  Runtime(const MpiSession& mpi, const Command& command);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const Command& command() const noexcept { return *command_; }
  [[nodiscard]] const Options& options() const noexcept { return command_->options; }
  [[nodiscard]] const Log& log() const noexcept { return log_; }
  [[nodiscard]] Communicator& world() const noexcept { return *world_; }
  [[nodiscard]] const ProcessGrid& grid() const noexcept { return *grid_; }
  [[nodiscard]] std::span<const RankInfo> ranks() const noexcept { return ranks_; }
  [[nodiscard]] const RankInfo& self() const {
    return ranks_[static_cast<std::size_t>(world_->rank())];
  }
  [[nodiscard]] int num_nodes() const;
  /// What this rank may use of its machine, before its threads were bound to cores of it.
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  /// The rank that talks to the user.
  [[nodiscard]] bool is_first() const noexcept { return world_->rank() == 0; }
  [[nodiscard]] Compute compute() const;
  /// Threads that move this rank's rows on while they compute, as those of compute() do, on the
  /// cores of these.
  [[nodiscard]] std::unique_ptr<ThreadPool> make_pool(int threads) const;
  /// Brings threads to the cores of this rank. False where the system refuses.
  bool bind(ThreadPool& pool) const;
  [[nodiscard]] Precision precision() const noexcept { return options().precision; }

  /// Whether this rank has been asked to stop; of verbs that take --max-time. Signals are heard
  /// from the first call on: before, there is nothing to lose, and they end the process. For one
  /// thread.
  [[nodiscard]] Interruption& interruption() const;
  /// The same, of its own, for who outlives this; null if nobody has asked for it.
  [[nodiscard]] std::unique_ptr<Interruption> release_interruption() noexcept {
    return std::move(interruption_);
  }
  /// Whether any rank has been asked to stop. Collective.
  [[nodiscard]] bool stop_wanted() const;
  /// Throws Interrupted on all ranks if any of them has been asked to stop. Collective.
  void leave_if_stop_wanted() const;
  /// The verb ends before all is done because a rank was asked to stop: tells so, with what is
  /// there, and makes the program's exit code 6. Collective.
  void end_early(std::string_view what_is_there);
  /// Calls `work`; ends early if it is Interrupted, on all ranks together.
  void run_or_end_early(std::string_view what_is_there, const std::function<void()>& work);
  [[nodiscard]] bool ends_early() const noexcept { return ends_early_; }

 private:
  /// Where Open MPI has bound ranks to cores that nobody asked for, and has not given them as many
  /// as they are to have `threads` (0: as many as there are), all ranks of the node take the cpus
  /// that it had for them: they share these out. Collective.
  void leave_default_binding(std::int64_t threads);
  void bind();
  /// What has asked the first of the ranks that were asked to stop. Collective.
  [[nodiscard]] std::string stop_reason() const;
  /// Tells, once, what is odd about the launch.
  void warn_of_launch() const;

  const Command* command_;
  Log log_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ProcessGrid> grid_;
  Topology topology_ = read_topology();
  std::vector<RankInfo> ranks_;
  Binding binding_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::unique_ptr<Interruption> interruption_;  // once it is asked for
  bool ends_early_ = false;
  Isa isa_ = Isa::scalar;
  std::unique_ptr<ThreadPool> pool_;
};

/// Starts MPI, resolves the command line and calls `verb` on every rank. An error ends the whole
/// job: one line on the standard error output, "[rank r/R host] error: ...", and the exit code of
/// its kind. Returns the exit code of this process.
int run_job(int argc, char** argv, const std::function<void(Runtime&)>& verb);

/// Version, compiler, MPI library and instruction sets, some lines.
[[nodiscard]] std::string version_text();

/// Throws Error{resource} if something of the standard output could not be written, such as to a
/// full disk: buffers hide that until they are flushed.
void flush_output();
/// First line of what the MPI library says about itself.
[[nodiscard]] std::string mpi_library_version();

}  // namespace moesaic
