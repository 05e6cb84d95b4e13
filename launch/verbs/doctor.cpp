#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/output_file.h"
#include "base/topology.h"
#include "launch/bench/machine_measure.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/launcher.h"
#include "launch/job/lost_hosts.h"
#include "launch/job/memory_check.h"
#include "launch/job/program_version.h"
#include "launch/job/verbs.h"
#include "launch/results/result_table.h"
#include "launch/results/run_statistics.h"
#include "launch/verbs/gpu_report.h"
#include "launch/verbs/host_pairs.h"
#include "launch/verbs/machine_facts.h"
#include "launch/verbs/self_test.h"

namespace moesaic {
namespace {

constexpr std::int64_t kTestRows = 16;  // for each peer
constexpr std::int64_t kTestRowBytes = 4096;
constexpr std::int64_t kTestBytes = std::int64_t{4} << 20;  // of all self-tests

/// What the doctor found; the parts of rank 0 are of its own machine.
struct Findings {
  Topology topology;
  MemoryLimit memory;
  MachineFacts facts;
  std::vector<std::string> warnings;
  std::vector<HostPair> pairs;
  ExchangeTest exchange;
  std::vector<KernelTest> kernels;
  GpuReport gpus;
};

std::vector<std::string_view> isas_of(const RankInfo& rank) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumIsas; ++i) {
    if (rank.supports(static_cast<Isa>(i))) names.push_back(isa_name(static_cast<Isa>(i)));
  }
  return names;
}

/// With their names.
std::vector<std::pair<std::string, std::string>> fact_lines(const MachineFacts& facts) {
  return {{"huge pages", facts.huge_pages},
          {"/dev/shm", facts.shared_memory},
          {"CPU quota", facts.cpu_quota},
          {"MPI transports", facts.transports},
          {"UCX", facts.ucx},
          {"process manager", facts.process_manager},
          {"Slurm", facts.slurm}};
}

void print_text(const Runtime& runtime, const Findings& found) {
  fmt::print("{}", version_text());
  fmt::print("CPU: {}, {} of {} cores usable, {}\n", found.topology.cpu_model,
             found.topology.usable_cores, found.topology.machine_cores,
             counted(found.topology.usable_numa_nodes, "NUMA node"));
  fmt::print("memory: {} available ({})\n", format_bytes(found.memory.available_bytes),
             found.memory.source);
  for (const auto& [name, text] : fact_lines(found.facts)) fmt::print("{}: {}\n", name, text);
  fmt::print("launch: {}\n\n", runtime_text(runtime));

  fmt::print("{:>4}  {:<20} {:>4}  {:>5}  {:>4}  {:>7}  {:<16} {}\n", "rank", "host", "node",
             "cores", "NUMA", "threads", "cpus", "instruction sets");
  for (std::size_t r = 0; r < runtime.ranks().size(); ++r) {
    const RankInfo& rank = runtime.ranks()[r];
    fmt::print("{:>4}  {:<20} {:>4}  {:>5}  {:>4}  {:>7}  {:<16} {}\n", r, rank.host_name(),
               rank.node, rank.cores, rank.numa_nodes, rank.threads, rank.cpus(),
               fmt::join(isas_of(rank), " "));
  }
  fmt::print("\n");
  for (const std::string& warning : found.warnings) fmt::print("warning: {}\n", warning);
  if (runtime.world().size() > 1) {
    fmt::print(
        "exchange: {} from each rank in {:.1f} us ({} GB/s), every byte right; barrier "
        "{:.1f} us\n",
        format_bytes(found.exchange.bytes_per_rank), found.exchange.microseconds,
        short_number(found.exchange.gigabytes_per_second()), found.exchange.barrier_microseconds);
  }
  fmt::print("{}", gpu_text(found.gpus, runtime));
  fmt::print("{}", pairs_text(found.pairs));
  for (const KernelTest& test : found.kernels) {
    fmt::print("kernel {:<23} {}\n", test.kernel,
               test.same_bits ? "same bits as scalar"
                              : fmt::format("relative error against scalar {:.1e}{}",
                                            test.relative_error, test.passed() ? "" : ": WRONG"));
  }
}

std::string rank_json(const RankInfo& rank) {
  return JsonWriter()
      .field("host", rank.host_name())
      .field("node", rank.node)
      .field("cores", rank.cores)
      .field("machine_cores", rank.machine_cores)
      .field("numa_nodes", rank.numa_nodes)
      .field("threads", rank.threads)
      .field("cpus", rank.cpus())
      .raw_field("isas", json_strings(isas_of(rank)))
      .text();
}

std::string facts_json(const MachineFacts& facts) {
  return JsonWriter()
      .field("huge_pages", facts.huge_pages)
      .field("shared_memory", facts.shared_memory)
      .field("cpu_quota", facts.cpu_quota)
      .field("mpi_transports", facts.transports)
      .field("ucx", facts.ucx)
      .field("process_manager", facts.process_manager)
      .field("slurm", facts.slurm)
      .text();
}

void print_json(const Runtime& runtime, const Findings& found) {
  std::vector<std::string> ranks;
  for (const RankInfo& rank : runtime.ranks()) ranks.push_back(rank_json(rank));
  JsonWriter kernels;
  for (const KernelTest& test : found.kernels) {
    kernels.raw_field(test.kernel, JsonWriter()
                                       .field("passed", test.passed())
                                       .field("same_bits", test.same_bits)
                                       .field("relative_error", test.relative_error)
                                       .text());
  }
  const ProgramVersion version = program_version();
  fmt::print("{}\n", JsonWriter()
                         .field("version", version.number)
                         .field("commit", version.commit)
                         .field("changed", version.is_dirty)
                         .field("compiler", version.compiler)
                         .field("mpi", mpi_library_version())
                         .field("cpu", found.topology.cpu_model)
                         .field("isa", isa_name(runtime.compute().isa))
                         .field("transport", runtime.world().transport())
                         .field("memory_bytes", found.memory.available_bytes)
                         .field("memory_source", found.memory.source)
                         .raw_field("ranks", fmt::format("[{}]", fmt::join(ranks, ", ")))
                         .raw_field("warnings", json_strings(found.warnings))
                         .raw_field("machine", facts_json(found.facts))
                         .raw_field("hosts", pairs_json(found.pairs))
                         .field("exchange_bytes", found.exchange.bytes_per_rank)
                         .field("exchange_microseconds", found.exchange.microseconds)
                         .field("barrier_microseconds", found.exchange.barrier_microseconds)
                         .raw_field("kernels", kernels.text())
                         .raw_field("gpu", gpu_json(found.gpus))
                         .text());
}

/// --measure. Collective.
void write_machine(const Runtime& runtime) {
  if (!runtime.options().measure) return;
  const std::string& path = *runtime.options().measure;
  runtime.log().once(LogLevel::info, "measuring what the nodes do, for {}", path);
  const MachineRates machine = measure_machine(runtime);
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    replace_file(path, machine.text() + "\n");
  });
}

}  // namespace

void run_doctor(Runtime& runtime) {
  agree(runtime.world(), [&] {
    const std::optional<std::string>& path = runtime.options().measure;
    if (path && runtime.is_first()) require_replaceable(*path);
    if (runtime.options().memory_limit) require_spare_memory(runtime, kTestBytes, "self-tests");
    if (path) require_machine_memory(runtime);
  });
  Findings found;
  found.exchange = test_exchange(runtime.world(), kTestRows, kTestRowBytes);
  found.pairs = measure_host_pairs(runtime);
  agree(runtime.world(), [&] {
    found.kernels = test_kernels();
    found.gpus = report_gpus(runtime);
    found.kernels.insert(found.kernels.end(), found.gpus.kernels.begin(), found.gpus.kernels.end());
  });
  find_owners(runtime, found.gpus);
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    found.topology = runtime.topology();
    found.memory = node_memory(runtime.options());
    found.facts = machine_facts(runtime.topology());
    found.warnings = launch_warnings(runtime.ranks(), Launcher());
    for (std::string& line : advice(runtime.ranks())) found.warnings.push_back(std::move(line));
    const std::string lost = lost_host_warning(runtime.ranks(), std::getenv);
    if (!lost.empty()) found.warnings.push_back(lost);
    runtime.options().json ? print_json(runtime, found) : print_text(runtime, found);
  });
  agree(runtime.world(), [&] {
    require(found.gpus.failure.empty(), ErrorKind::resource, "self-test: {}", found.gpus.failure);
    for (const KernelTest& test : found.kernels) {
      require(test.passed(), ErrorKind::internal,
              "self-test: kernel {} computes something else than scalar", test.kernel);
    }
  });
  write_machine(runtime);
}

}  // namespace moesaic
