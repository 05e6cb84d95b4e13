#include "launch/bench/machine_measure.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/counted.h"
#include "base/topology.h"
#include "kernels/kernel_table.h"
#include "kernels/roof.h"
#include "launch/bench/attention_bed.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/gpu_measure.h"
#include "launch/bench/link_measure.h"
#include "launch/bench/product_measure.h"
#include "launch/bench/row_measure.h"
#include "launch/bench/together.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"

namespace moesaic {
namespace {

/// Of a rank, that its weights rotate over: no cache is to hold a node's.
constexpr std::int64_t kColdBytes = std::int64_t{1} << 30;
/// What is measured needs some all the same.
constexpr std::int64_t kLeastBytes = std::int64_t{32} << 20;
/// Of a thread, that its core's own cache holds.
constexpr std::int64_t kCachedBytesOfThread = std::int64_t{1} << 20;
/// Rows, results and samples of weights, as seen; rows between ranks come after most of them.
constexpr std::int64_t kOtherBytes = std::int64_t{52} << 20;
/// Of small models, of Granite, of Qwen3-30B-A3B, and, with values as wide as keys, of DeepSeek-V3.
constexpr std::array<AttentionForm, 4> kAttentions = {
    {{.heads = 16, .kv_heads = 4, .head_dim = 32},
     {.heads = 16, .kv_heads = 8, .head_dim = 64},
     {.heads = 32, .kv_heads = 4, .head_dim = 128},
     {.heads = 16, .kv_heads = 1, .head_dim = 576}}};
constexpr std::int64_t kKeys = 2048;
constexpr std::int64_t kAttentionRowsMeasured = 512;

class Measurement {
 public:
  explicit Measurement(const Runtime& runtime)
      : runtime_(runtime),
        together_(runtime.world(), runtime.options().seconds / 2),
        on_node_(static_cast<double>(runtime.grid().node().size())),
        memory_(std::clamp(cold_bytes(runtime), kLeastBytes, kColdBytes)),
        cached_(kCachedBytesOfThread * runtime.compute().pool->size()) {}

  MachineRates run() {
    MachineRates machine;
    ProductMeasure products(runtime_, together_, memory_.span(), cached_.span());
    machine.calls = products.measure_calls();
    machine.calls.job_seconds = measure_jobs();
    const RateCurve gates{.sizes = {1}, .values = {products.measure_gates()}};
    for (int i = 0; i < kNumFormats; ++i) {
      const auto format = static_cast<Format>(i);
      machine.products.emplace(format, products.products(format));
    }
    measure_attention(machine);
    measure_reads(machine);
    machine.row_ops =
        measure_row_ops(runtime_, together_, memory_.span(), machine.calls.job_seconds);
    machine.row_ops[static_cast<std::size_t>(RowOp::gate)] = gates;
    machine.row_ops[static_cast<std::size_t>(RowOp::attend)] = measure_short_attention(machine);
    machine.routing = measure_routing(runtime_, together_, machine.of(RowOp::round));
    measure_ranks(machine);
    return machine;
  }

 private:
  void measure_attention(MachineRates& machine) {
    const Compute compute = runtime_.compute();
    const AttentionKernel& kernel = find_attention_kernel(compute.isa, AttentionKind::bf16);
    for (const AttentionForm& form : kAttentions) {
      AttentionBed bed(form, AttentionKind::bf16, kKeys, memory_.span());
      const double seconds =
          together_.seconds([&] { bed.run(kernel, kAttentionRowsMeasured, *compute.pool); });
      machine.attention_flops_per_second.sizes.push_back(static_cast<double>(form.head_dim));
      machine.attention_flops_per_second.values.push_back(
          on_node_ * bed.operations(kAttentionRowsMeasured) / seconds);
    }
  }

  /// What attention takes a number of a query besides operations: a few tokens see each other.
  [[nodiscard]] RateCurve measure_short_attention(const MachineRates& machine) {
    constexpr AttentionForm kForm = kAttentions[1];
    const Compute compute = runtime_.compute();
    const AttentionKernel& kernel = find_attention_kernel(compute.isa, AttentionKind::bf16);
    AttentionBed bed(kForm, AttentionKind::bf16, kKeysPerBlock, memory_.span());
    const double seconds =
        together_.seconds([&] { bed.run(kernel, kKeysPerBlock, *compute.pool); });
    // All rows of a pass see all keys of a block, or leave them out.
    constexpr auto kNumbers = static_cast<double>(kKeysPerBlock * kForm.heads * kForm.head_dim);
    const double products = 4 * kNumbers * static_cast<double>(kKeysPerBlock) /
                            machine.attention_flops_per_second.at(kForm.head_dim);
    return {
        .sizes = {kNumbers},
        .values = {std::max(seconds / on_node_ / 10, seconds / on_node_ - products) / kNumbers}};
  }

  /// More and more of the memory, from what the nearest caches hold to all of it.
  void measure_reads(MachineRates& machine) {
    constexpr std::int64_t kStep = 4;
    constexpr std::int64_t kReadAtOnce = std::int64_t{16} << 20;
    ThreadPool& pool = *runtime_.compute().pool;
    std::int64_t at = 0;
    for (std::int64_t bytes = std::min(cached_.size(), memory_.size());;
         bytes = std::min(kStep * bytes, memory_.size())) {
      // A part of them in a sample, the next one in the next.
      const std::int64_t part = std::min(bytes, kReadAtOnce * pool.size());
      const auto times = static_cast<int>(std::max<std::int64_t>(1, kReadAtOnce / part));
      const auto read = [&](const Prefetch& prefetch) {
        return together_.seconds(
            [&] {
              at = at + 2 * part <= bytes ? at + part : 0;
              run_reads(std::as_const(memory_).span().subspan(static_cast<std::size_t>(at),
                                                              static_cast<std::size_t>(part)),
                        prefetch, pool);
            },
            times);
      };
      const double seconds = std::min(read({}), read({.bytes_ahead = 2048}));
      machine.read_bytes_per_second.sizes.push_back(static_cast<double>(bytes));
      machine.read_bytes_per_second.values.push_back(on_node_ * static_cast<double>(part) /
                                                     seconds);
      if (bytes == memory_.size()) return;
    }
  }

  double measure_jobs() const {
    constexpr int kCalls = 100;
    ThreadPool& pool = *runtime_.compute().pool;
    return together_.seconds([&] { pool.for_each(pool.size(), 1, [](std::int64_t) {}); }, kCalls);
  }

  void measure_ranks(MachineRates& machine) {
    Communicator& world = runtime_.world();
    constexpr int kBarriers = 100;
    machine.barrier_seconds = together_.seconds([&] { world.barrier(); }, kBarriers);
    std::vector<int> nodes;
    for (const RankInfo& rank : runtime_.ranks()) nodes.push_back(rank.node);
    machine.inside = measure_rows(nodes, true);
    machine.between = measure_rows(nodes, false);
  }

  /// Between the ranks of a node, or between nodes.
  [[nodiscard]] std::optional<LinkRates> measure_rows(const std::vector<int>& nodes,
                                                      bool is_inside) const {
    const auto link = measure_link(runtime_.world(), nodes, is_inside);
    if (!link) return std::nullopt;
    if (link->is_noisy) {
      runtime_.log().once(LogLevel::warning,
                          "rows {} nodes: others on the machine make it too noisy to tell bytes "
                          "from all else that an exchange takes, which counts with them; measure "
                          "again when it has less to do",
                          is_inside ? "inside" : "between");
    }
    return link->rates;
  }

  const Runtime& runtime_;
  Together together_;
  double on_node_;
  Buffer<std::byte> memory_;
  Buffer<std::byte> cached_;
};

/// Threads at work on a node, but no more than it has cores.
int cores_measured(const Runtime& runtime) {
  int threads = 0;
  for (const RankInfo& rank : runtime.ranks()) {
    if (rank.node == runtime.self().node) threads += rank.threads;
  }
  return std::clamp(threads, 1, runtime.self().machine_cores);
}

}  // namespace

void require_machine_memory(const Runtime& runtime) {
  const std::int64_t cached = kCachedBytesOfThread * runtime.compute().pool->size();
  require_spare_memory(runtime, kLeastBytes + 2 * cached + kOtherBytes, "measurements");
}

MachineRates measure_machine(const Runtime& runtime) {
  RuntimeBytes bytes = runtime_bytes();  // before what is measured takes some
  runtime.world().max({&bytes.rank, 1});
  runtime.world().max({&bytes.node, 1});
  MachineRates machine = Measurement(runtime).run();
  machine.gpu = measure_gpus(runtime);
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  machine.measured = fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ} on {}, {} on {}", fmt::gmtime(now), runtime.self().host_name(),
      counted(runtime.world().size(), "rank"), counted(runtime.num_nodes(), "node"));
  machine.cpu = read_topology().cpu_model;
  machine.isa = isa_name(runtime.compute().isa);
  machine.cores = cores_measured(runtime);
  machine.rank_bytes = bytes.rank;
  machine.node_bytes = bytes.node;
  return machine;
}

}  // namespace moesaic
