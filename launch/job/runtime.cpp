#include "launch/job/runtime.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/checksum.h"
#include "base/device.h"
#include "base/error.h"
#include "comm/checked_communicator.h"
#include "comm/shared_memory_communicator.h"
#include "launch/job/agreement.h"
#include "launch/job/default_binding.h"
#include "launch/job/failure.h"
#include "launch/job/gather.h"
#include "launch/job/gpu_road.h"
#include "launch/job/launcher.h"
#include "launch/job/lost_hosts.h"
#include "launch/job/program_version.h"
#include "launch/job/quick_start.h"
#include "launch/job/start_check.h"
#include "launch/job/trace_files.h"
#include "launch/options/option_table.h"
#include "src/checkpoint/read_faults.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {
namespace {

std::unique_ptr<Communicator> make_transport(const MpiSession& mpi, const Options& options,
                                             const Log& log) {
  const CommOptions comm{.timeout = std::chrono::seconds(options.timeout),
                         .ranks_per_node = static_cast<int>(options.ranks_per_node),
                         .require_shared_memory = options.transport == Transport::shm,
                         .check_rows = options.check_rows,
                         .trace_file = trace_file(options, mpi.rank()),
                         .tell = [&log](LogLevel level, const std::string& message) {
                           log.write(level, "{}", message);
                         }};
  if (options.transport == Transport::mpi) return make_mpi_communicator(mpi, comm);
  try {
    return make_shared_memory_communicator(mpi, comm);
  } catch (const SharedMemoryRefused& refusal) {
    throw AgreedError(Error(refusal.kind(), fmt::format("--transport shm: {} (--transport auto "
                                                        "takes MPI in its place)",
                                                        refusal.what())),
                      mpi.rank() == 0);
  }
}

/// `log` must outlive it.
std::unique_ptr<Communicator> make_world(const MpiSession& mpi, const Options& options,
                                         const Log& log) {
  auto world = make_transport(mpi, options, log);
  return options.check_comm ? make_checked_communicator(std::move(world)) : std::move(world);
}

/// An MPI that does not understand its launcher starts every process as a job of its own.
void refuse_singletons(int mpi_size) {
  const auto [expected, variable] = Launcher().started();
  require(mpi_size > 1 || expected == 1, ErrorKind::usage,
          "started as {} separate programs instead of one job of {} ranks ({} says so): use the "
          "mpirun of the same MPI, or under Slurm srun --mpi=pmix (srun --mpi=list)",
          expected, expected, variable);
}

/// Launchers do not always carry environment variables and files to all nodes.
void require_same_options(Communicator& world, const Command& command) {
  std::vector<Shared> shared = {
      {.what = "the verbs", .fingerprint = static_cast<std::uint64_t>(*command.verb)}};
  for (const OptionRow& row : option_table()) {
    if (row.may_differ) continue;
    shared.push_back(
        {.what = fmt::format("the values of --{} or {}", row.name, environment_name(row)),
         .fingerprint = checksum(value_text(row, command.options))});
  }
  require_same(world, shared);
}

/// Whether the job is one that an odd launch makes slow, or hang. Doctor tells of it in its report.
bool computes_on_ranks(const Command& command) {
  if (command.options.show_config) return false;
  switch (*command.verb) {
    case Verb::doctor:
    case Verb::inspect:
    case Verb::tokenize:
      return false;
    default:
      return true;
  }
}

/// Tells the user, once, why the job ends.
void print_error(const Log& log, std::string_view message) {
  log.write(LogLevel::error, "{}", message);
}

/// A verb that can be interrupted hears of it through the result; others end as every process does.
/// Rank 0 alone looks for the stop file.
InterruptionOptions interruption_options(const Command& command, bool is_first,
                                         std::chrono::steady_clock::duration passed) {
  const Options& options = command.options;
  InterruptionOptions result{.signals = {}, .max_time = {}, .stop_file = ""};
  if (!takes(*command.verb, *find_option("max-time", command.verb))) return result;
  result.signals = {SIGINT, SIGTERM, SIGUSR1};
  if (options.max_time) {
    result.max_time = std::chrono::milliseconds(options.max_time->milliseconds) -
                      std::chrono::duration_cast<std::chrono::milliseconds>(passed);
  }
  if (is_first) result.stop_file = stop_file(command);
  return result;
}

/// The launcher has a code for a rank that was lost, if those that it ends leave it that: srun
/// takes any code that a rank exits with, or else that of the largest signal. So this one is
/// killed.
void leave_code_to_launcher() {
  std::signal(SIGTERM, [](int) { std::raise(SIGKILL); });
}

/// How long this rank waits for its turn to speak: the first speaks at once, and the launcher has
/// time to end the others, also on a busy host.
std::chrono::milliseconds turn_of(int rank) {
  constexpr std::chrono::milliseconds kLauncherTime(250);
  constexpr std::chrono::milliseconds kTurn(50);
  return rank == 0 ? std::chrono::milliseconds(0) : kLauncherTime + kTurn * std::min(rank, 20);
}

/// Ends the job because of the exception being handled. Ranks that fail at the same time speak one
/// after the other, echoes last: the first to speak ends the others before their turn.
/// `interruption`: what the verb has heard, if it listened.
int end_job(const MpiSession& mpi, const Log& log, std::unique_ptr<Interruption> interruption) {
  const Failure failure = describe_current_exception();
  if (failure.grace.count() > 0) {
    leave_code_to_launcher();
  } else {
    interruption.reset();  // SIGTERM ends this rank at once
  }
  if (mpi.size() > 1) std::this_thread::sleep_for(failure.silence + turn_of(log.rank()));
  log.write(failure.level, "{}", failure.message);
  if (mpi.size() > 1) {
    if (interruption && interruption->is_terminated()) std::raise(SIGKILL);
    std::this_thread::sleep_for(failure.grace);
    mpi.abort(failure.code);
  }
  return failure.code;
}

/// Returns the exit code, or throws: then `interruption` goes on listening when the runtime is
/// gone. A SIGTERM that comes while that is taken down would end this rank with a code of its own.
int run_verb(Runtime& runtime, const std::function<void(Runtime&)>& verb,
             std::unique_ptr<Interruption>& interruption) {
  try {
    verb(runtime);
    flush_output();
    runtime.world().barrier();
    if (!runtime.ends_early()) return 0;
    std::signal(SIGTERM, SIG_IGN);  // as in run_job(): a rank may be gone while this one goes
    return kInterruptedCode;
  } catch (...) {
    interruption = runtime.release_interruption();
    throw;
  }
}

int run_ranked(const MpiSession& mpi, int argc, char** argv,
               const std::function<void(Runtime&)>& verb) {
  Log log;
  std::unique_ptr<Interruption> interruption;
  std::unique_ptr<Communicator> starters;  // all ranks free it together, also after an AgreedError
  try {
    log = Log(LogLevel::info, mpi.rank(), mpi.size());
    starters = make_mpi_communicator(mpi);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Command command;
    agree(*starters, [&] {
      refuse_singletons(mpi.size());
      command = parse_command(arguments, moesaic_environment());
      require(command.verb.has_value(), ErrorKind::usage, "no verb; see moesaic --help");
      require_experts_for_nccl(command);
    });
    require_same_options(*starters, command);
    agree(*starters, [&] { prepare_traces(command.options); });
    Runtime runtime(mpi, command);
    return run_verb(runtime, verb, interruption);
  } catch (const AgreedError& error) {
    if (error.speaks()) print_error(log, error.what());
    return exit_code(error.kind());
  } catch (...) {
    return end_job(mpi, log, std::move(interruption));
  }
}

/// See quick_start_variables.
void start_mpi_quickly() {
  for (const auto& [name, value] : quick_start_variables()) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace

Runtime::Runtime(const MpiSession& mpi, const Command& command)
    : command_(&command),
      log_(command.options.log_level, mpi.rank(), mpi.size()),
      world_(make_world(mpi, command.options, log_)) {
  agree(*world_,
        [&] { require_replicas(world_->size(), static_cast<int>(options().expert_replicas)); });
  grid_ = std::make_unique<ProcessGrid>(*world_, static_cast<int>(options().expert_replicas));
  const std::vector<std::int64_t>& counts = options().thread_counts;
  const std::int64_t threads = counts.empty() ? options().threads : std::ranges::max(counts);
  leave_default_binding(threads);
  ranks_ = gather_ranks(*world_, grid_->node(), topology_, threads);
  if (options().combine == Combine::fast) {
    agree(*world_, [&] { require_like_copies(ranks_, grid_->experts().size()); });
  }
  agree(*world_, [&] {
    isa_ = choose_isa(ranks_, options().isa.isa, options().numerics == Numerics::portable);
  });
  pool_ = make_pool(self().threads);
  bind();
  for (const std::string& note : command.notes) log_.once(LogLevel::warning, "{}", note);
  if (computes_on_ranks(command)) warn_of_launch();
}

void Runtime::warn_of_launch() const {
  for (const std::string& line : launch_warnings(ranks_, Launcher())) {
    log_.once(LogLevel::info, "note: {}", line);
  }
  const std::string lost = lost_host_warning(ranks_, std::getenv);
  if (!lost.empty()) log_.once(LogLevel::warning, "{}", lost);
}

void Runtime::leave_default_binding(std::int64_t threads) {
  const bool is_too_small = threads == 0 || threads > topology_.usable_cores;
  const bool leaves = is_too_small && options().pin == Pinning::automatic &&
                      topology_.is_this_machine && is_bound_by_default();
  std::int64_t stays = leaves ? 0 : 1;  // one that stays would have its cores taken by the others
  grid_->node().max({&stays, 1});
  if (stays == 0 && take_cpus_of_parent()) topology_ = read_topology();
}

/// Before anything is loaded, so that memory is first touched where it is used.
void Runtime::bind() {
  if (options().pin == Pinning::off) {
    binding_.reason = "--pin off";
  } else {
    binding_ = plan_binding(ranks_, static_cast<std::size_t>(world_->rank()), topology_);
  }
  std::int64_t refused = 0;
  if (!bind(*pool_)) {
    refused = 1;
    binding_ = {.reason = "the system refuses"};
  }
  world_->max({&refused, 1});
  if (refused != 0) {
    log_.once(LogLevel::warning,
              "threads are not bound to cores, which the system refuses; --pin off does not ask");
  }
  if (!options().print_binding) return;
  std::array<char, 256> text{};
  binding_text(binding_).copy(text.data(), text.size() - 1);
  const auto texts = gather_values(*world_, text);
  if (!is_first()) return;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    fmt::print(stderr, "rank {} on {}: {}\n", r, ranks_[r].host_name(), texts[r].data());
  }
}

bool Runtime::bind(ThreadPool& pool) const {
  const bool is_wanted = !binding_.cores.empty() && topology_.is_this_machine;
  return !is_wanted || bind_threads(pool, binding_);
}

int Runtime::num_nodes() const {
  return 1 + std::max_element(ranks_.begin(), ranks_.end(), [](const auto& a, const auto& b) {
               return a.node < b.node;
             })->node;
}

std::unique_ptr<ThreadPool> Runtime::make_pool(int threads) const {
  auto pool = std::make_unique<ThreadPool>(threads);
  pool->set_between_tasks([this] { world_->progress(); }, kProgressEvery);
  (void)bind(*pool);
  return pool;
}

Compute Runtime::compute() const {
  return {.isa = isa_,
          .vector = &find_vector_kernels(isa_),
          .pool = pool_.get(),
          .nvfp4_activations = options().nvfp4_activations,
          .int4_activations = options().int4_activations};
}

Interruption& Runtime::interruption() const {
  if (!interruption_) {
    interruption_ = std::make_unique<Interruption>(
        interruption_options(*command_, is_first(), std::chrono::steady_clock::now() - start_));
  }
  return *interruption_;
}

bool Runtime::stop_wanted() const {
  std::int64_t wanted = interruption().wanted() ? 1 : 0;
  world_->max(std::span(&wanted, 1));
  return wanted != 0;
}

void Runtime::leave_if_stop_wanted() const {
  if (stop_wanted()) throw Interrupted("interrupted");
}

std::string Runtime::stop_reason() const {
  const std::string& own = interruption().reason();
  const auto asked = gather_values(*world_, static_cast<std::int32_t>(!own.empty()));
  const auto first = static_cast<int>(std::ranges::find(asked, 1) - asked.begin());
  if (first == world_->size()) return "a rank was asked to stop";
  std::vector<char> reason(own.begin(), own.end());
  broadcast_vector(*world_, reason, first);
  return {reason.begin(), reason.end()};
}

void Runtime::end_early(std::string_view what_is_there) {
  log_.once(LogLevel::warning, "interrupted ({}): {}", stop_reason(), what_is_there);
  interruption().remove_stop_file();
  ends_early_ = true;
}

void Runtime::run_or_end_early(std::string_view what_is_there, const std::function<void()>& work) {
  try {
    work();
  } catch (const Interrupted&) {
    end_early(what_is_there);
  }
}

int run_job(int argc, char** argv, const std::function<void(Runtime&)>& verb) {
  std::unique_ptr<MpiSession> mpi;
  try {
    require_ways_to_start();
    start_mpi_quickly();
    mpi = std::make_unique<MpiSession>(&argc, &argv);
  } catch (...) {
    const Failure failure = describe_current_exception();
    // What is wrong with the command line is so of all; of a node, some may not have it.
    const bool is_told =
        failure.code == exit_code(ErrorKind::usage) && Launcher().is_later_process();
    if (is_told) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // a launcher may end all with this one
    } else {
      print_error(Log(), failure.message);
    }
    return failure.code;
  }
  const ReadFaultHandler faults;  // after MPI has set its own
  const int code = run_ranked(*mpi, argc, argv, verb);
  if (has_lost_device()) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  // The first process that is gone with a code may make the launcher end those that are about to go
  // with the same.
  if (code != 0) std::signal(SIGTERM, SIG_IGN);
  return code;
}

void flush_output() {
  const bool flushed = std::fflush(stdout) == 0;
  require(flushed && std::ferror(stdout) == 0, ErrorKind::resource,
          "the standard output could not be written; is the disk full?");
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::string version_text() {
  std::vector<std::string_view> isas;
  for (const Isa isa : supported_isas()) isas.push_back(isa_name(isa));
  const ProgramVersion version = program_version();
  return fmt::format("moesaic {}\ncompiler: {}\nMPI: {}\ninstruction sets: {}\n", version.text(),
                     version.compiler, mpi_library_version(), fmt::join(isas, ", "));
}

}  // namespace moesaic
