#include "launch/bench/machine_measure.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>

#include "base/topology.h"
#include "kernels/kernel_table.h"
#include "launch/bench/attention_bed.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/link_measure.h"
#include "launch/bench/measured_product.h"
#include "launch/bench/roofs.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostRows = 1024;
/// That of a rank's weights that rotate; no cache is to hold a node's.
constexpr std::int64_t kColdBytes = std::int64_t{256} << 20;
/// Experts' gate of Qwen3-30B-A3B, and its attention.
constexpr MatrixShape kShape{.columns = 768, .depth = 2048};
constexpr AttentionForm kAttention{.heads = 32, .kv_heads = 4, .head_dim = 128};
constexpr std::int64_t kKeys = 2048;
constexpr std::int64_t kAttentionRowsMeasured = 512;

/// All ranks at the same work, which is repeated: what a quarter of the times do not exceed, of the
/// slowest rank.
class Together {
 public:
  Together(Communicator& world, double budget) : world_(world), budget_(budget) {}

  [[nodiscard]] double seconds(const std::function<void()>& work) const {
    std::vector<double> samples;
    (void)time_together(world_, work);  // warms up
    for (double sum = 0; sum < budget_ || samples.size() < 3; sum += samples.back()) {
      samples.push_back(time_together(world_, work));  // the same on all ranks
    }
    return lower_quartile(std::move(samples));
  }

 private:
  Communicator& world_;
  double budget_;  // seconds
};

class Measurement {
 public:
  explicit Measurement(const Runtime& runtime)
      : runtime_(runtime),
        together_(runtime.world(), runtime.options().seconds),
        on_node_(static_cast<double>(runtime.grid().node().size())),
        memory_(std::min(kColdBytes, cold_bytes(runtime))) {}

  MachineRates run() {
    MachineRates machine;
    for (int i = 0; i < kNumFormats; ++i) {
      const auto format = static_cast<Format>(i);
      machine.products.emplace(format, measure_products(format));
    }
    machine.attention_flops_per_second = measure_attention();
    measure_rows(machine);
    measure_ranks(machine);
    machine.read_bytes_per_second =
        measure_roofs(runtime_, *runtime_.compute().pool, {{Format::bf16, 1.0}}).bytes_per_second /
        runtime_.num_nodes();
    return machine;
  }

 private:
  /// Products of all ranks of a node, each with its own weights: in that time a node is through as
  /// many as it has ranks.
  ProductCurve measure_products(Format format) {
    const Layout layout = *layout_from_name(format_name(format));
    const auto element = format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
    const Compute compute = runtime_.compute();
    const SampleWeights weights(layout, kShape.depth);
    const SampleRows inputs(element, kMostRows, kShape.depth);
    ColdMatrices matrices(weights, kShape.columns, memory_.span(), *compute.pool);
    const ProductBed bed{kShape, &weights, &inputs, &inputs, &matrices, memory_.span()};
    const auto product = make_product(ProductOp::forward, bed, compute);
    ProductCurve curve;
    for (std::int64_t rows = 1; rows <= kMostRows; rows *= 2) {
      product->prepare(rows);
      const double seconds = together_.seconds([&] { product->run(); });
      curve.rows.push_back(static_cast<double>(rows));
      curve.seconds_per_weight.push_back(seconds / on_node_ /
                                         static_cast<double>(kShape.columns * kShape.depth));
    }
    return curve;
  }

  double measure_attention() {
    AttentionBed bed(kAttention, AttentionKind::bf16, kKeys, memory_.span());
    const Compute compute = runtime_.compute();
    const AttentionKernel& kernel = find_attention_kernel(compute.isa, AttentionKind::bf16);
    const double seconds =
        together_.seconds([&] { bed.run(kernel, kAttentionRowsMeasured, *compute.pool); });
    return on_node_ * bed.operations(kAttentionRowsMeasured) / seconds;
  }

  /// Rows that are read and written again, as norms and sums do, and calls that do nothing.
  void measure_rows(MachineRates& machine) {
    constexpr std::int64_t kRows = 512;
    const Compute compute = runtime_.compute();
    const Buffer<float> x(kRows * kShape.depth);
    const Buffer<float> y(kRows * kShape.depth);
    const double seconds = together_.seconds([&] {
      compute.pool->for_each(kRows, 8, [&](std::int64_t row) {
        compute.vector->add_scaled(x.data() + row * kShape.depth, 0.5F, kShape.depth,
                                   y.data() + row * kShape.depth);
      });
    });
    constexpr auto kBytes =
        static_cast<double>(3 * 4 * kRows * kShape.depth);  // two read, one written
    machine.row_bytes_per_second = on_node_ * kBytes / seconds;
    constexpr int kCalls = 100;
    machine.job_seconds = together_.seconds([&] {
      for (int call = 0; call < kCalls; ++call) {
        compute.pool->for_each(compute.pool->size(), 1, [](std::int64_t) {});
      }
    }) / kCalls;
  }

  void measure_ranks(MachineRates& machine) {
    Communicator& world = runtime_.world();
    constexpr int kBarriers = 100;
    machine.barrier_seconds = together_.seconds([&] {
      for (int i = 0; i < kBarriers; ++i) world.barrier();
    }) / kBarriers;
    std::vector<int> nodes;
    for (const RankInfo& rank : runtime_.ranks()) nodes.push_back(rank.node);
    machine.inside = measure_link(world, nodes, true);
    machine.between = measure_link(world, nodes, false);
  }

  const Runtime& runtime_;
  Together together_;
  double on_node_;
  Buffer<std::byte> memory_;
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

MachineRates measure_machine(const Runtime& runtime) {
  RuntimeBytes bytes = runtime_bytes();  // before what is measured takes some
  runtime.world().max({&bytes.rank, 1});
  runtime.world().max({&bytes.node, 1});
  MachineRates machine = Measurement(runtime).run();
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  machine.measured = fmt::format("{:%Y-%m-%dT%H:%M:%SZ} on {}, {} {} on {} {}", fmt::gmtime(now),
                                 runtime.self().host_name(), runtime.world().size(),
                                 runtime.world().size() == 1 ? "rank" : "ranks",
                                 runtime.num_nodes(), runtime.num_nodes() == 1 ? "node" : "nodes");
  machine.cpu = read_topology().cpu_model;
  machine.isa = isa_name(runtime.compute().isa);
  machine.cores = cores_measured(runtime);
  machine.rank_bytes = bytes.rank;
  machine.node_bytes = bytes.node;
  return machine;
}

}  // namespace moesaic
