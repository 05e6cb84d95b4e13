#include "src/parallel/step_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "src/parallel/gpu_work.h"

namespace moesaic {
namespace {

/// The term of some work of one format or kind.
struct TermKey {
  std::string name;
  std::optional<Phase> phase;
};

CostTerm& term(StepCost& cost, const TermKey& key, std::string_view unit,
               const std::string& source) {
  for (CostTerm& known : cost.terms) {
    if (known.name == key.name) return known;
  }
  return cost.terms.emplace_back(
      CostTerm{.name = key.name, .phase = key.phase, .unit = unit, .source = source});
}

/// How much longer a rank takes than a node that has all cores for it.
double core_share(const CostRanks& ranks, const MachineRates& machine) {
  const int on_node = ranks.on_node() * ranks.threads;
  return static_cast<double>(std::max(machine.cores, on_node)) / ranks.threads;
}

/// What products with weights of one format take, part by part.
class ProductTerms {
 public:
  ProductTerms(StepCost& cost, const StepWork& work, const MachineRates& machine, double share)
      : cost_(cost),
        machine_(machine),
        share_(share),
        coldness_(machine.coldness(work.held_bytes)) {}

  void add(const StepWork::Product& product) {
    const Format format = product.with.format;
    const auto found = machine_.products.find(format);
    require(found != machine_.products.end(), ErrorKind::usage, "{}: {} was not measured",
            machine_.path, format_name(format));
    const ProductCurve& curve = found->second;
    const CostWeights& with = product.with;
    const double times = share_ * product.times;
    const double rows = product.times * product.rows;
    const std::string source = fmt::format("{}: products.{}", machine_.path, format_name(format));
    const std::string_view back = product.is_transposed ? ".back" : "";
    const std::string_view as_fast = product.is_transposed ? ", as fast transposed" : "";
    add({product.phase, fmt::format("{}{}", format_name(format), back)}, "flop",
        2 * rows * with.weights,
        times * (curve.seconds(product.rows, with.weights, coldness_) +
                 with.columns * curve.column_seconds),
        fmt::format("{}{}", source, as_fast));
    add({product.phase, "pack"}, "number", rows * with.packed,
        share_ * rows * with.packed *
            (product.is_rounded ? curve.pack_bf16_seconds : curve.pack_f32_seconds),
        source);
    add({product.phase, "results"}, "number", rows * with.results,
        share_ * rows * with.results *
            (product.is_streamed ? curve.streamed_result_seconds : curve.result_seconds),
        source);
    add({product.phase, "gates"}, "number", rows * with.gated,
        share_ * rows * with.gated * machine_.of(RowOp::gate).at(with.gated),
        fmt::format("{}: row_ops.gate", machine_.path));
  }

 private:
  struct Name {
    Phase phase;
    std::string part;
  };
  void add(const Name& name, std::string_view unit, double quantity, double seconds,
           const std::string& source) {
    if (quantity <= 0) return;
    const std::string full =
        fmt::format("{}.{}", kPhaseNames[static_cast<std::size_t>(name.phase)], name.part);
    CostTerm& part = term(cost_, {full, name.phase}, unit, source);
    part.quantity += quantity;
    part.seconds += seconds;
  }

  StepCost& cost_;
  const MachineRates& machine_;
  double share_;
  double coldness_;
};

/// What is not a product: `quantity` at `rate` a second.
struct PlainTerm {
  std::string name;
  std::optional<Phase> phase;
  double quantity;
  const char* unit;
  double seconds;
  std::string field;  // of the machine's file
};

void add_plain(StepCost& cost, const MachineRates& machine, const PlainTerm& plain) {
  if (plain.quantity <= 0) return;
  CostTerm& part = term(cost, {plain.name, plain.phase}, plain.unit,
                        fmt::format("{}: {}", machine.path, plain.field));
  part.quantity += plain.quantity;
  part.seconds += plain.seconds;
}

/// Throws Error{usage} naming the links of all that work sends whose rates the machine has not.
void require_links(const StepWork& work, const CostRanks& ranks, const MachineRates& machine) {
  const bool sums = work.sum_bytes > 0;
  const bool uses_inside = work.node_messages > 0 || (sums && ranks.nodes() == 1);
  const bool uses_between = work.link_messages > 0 || (sums && ranks.nodes() > 1);
  std::string missing;
  if (uses_inside && !machine.inside) missing = "between ranks of a node";
  if (uses_between && !machine.between) {
    missing += missing.empty() ? "between nodes" : " and between nodes";
  }
  require(missing.empty(), ErrorKind::usage,
          "{}: rows {} were not measured; start moesaic doctor --measure with several of them",
          machine.path, missing);
}

/// `on_node`: ranks of a node that send at the same time.
double link_rate(const LinkRates& link, int on_node) {
  return on_node == 1 ? link.one_rank_bytes_per_second : link.all_ranks_bytes_per_second;
}

void add_exchange(StepCost& cost, const StepWork& work, const CostRanks& ranks,
                  const MachineRates& machine) {
  const int on_node = ranks.on_node();
  if (work.node_messages > 0) {
    const LinkRates& link = *machine.inside;
    add_plain(cost, machine,
              {"node.messages", Phase::wait, work.node_messages, "message",
               work.node_messages * link.latency_seconds, "inside"});
    add_plain(cost, machine,
              {"node.bytes", Phase::wait, work.node_bytes, "byte",
               work.node_bytes / link_rate(link, on_node), "inside"});
  }
  if (work.link_messages > 0) {
    const LinkRates& link = *machine.between;
    add_plain(cost, machine,
              {"link.messages", Phase::wait, work.link_messages, "message",
               work.link_messages * link.latency_seconds, "between"});
    add_plain(cost, machine,
              {"link.bytes", Phase::wait, work.link_bytes, "byte",
               work.link_bytes / link_rate(link, on_node), "between"});
  }
}

/// Takes off what goes on behind the layers' work.
void hide_links(StepCost& cost) {
  double compute = 0;
  double transfer = 0;
  for (const CostTerm& part : cost.terms) {
    if (part.name.starts_with("link.")) {
      transfer += part.seconds;
    } else if (part.phase != Phase::wait && part.phase != Phase::head) {
      compute += part.seconds;
    }
  }
  if (transfer == 0) return;
  CostTerm& part = term(cost, {"link.hidden", Phase::wait}, "second", "docs/performance.md");
  part.quantity = transfer;
  const OverlapShares counts = overlap_shares(compute, transfer);
  part.seconds = (counts.compute - 1) * compute + (counts.transfer - 1) * transfer;
}

/// Adapters' products are small: they take as long as products of many rows with bf16 weights.
double adapter_flop_seconds(const MachineRates& machine) {
  const auto bf16 = machine.products.find(Format::bf16);
  const ProductCurve& curve =
      bf16 != machine.products.end() ? bf16->second : machine.products.begin()->second;
  const double rows = curve.rows.back();
  return curve.seconds(rows, 1) / (2 * rows);
}

void add_training(StepCost& cost, const StepWork& work, const CostRanks& ranks,
                  const MachineRates& machine) {
  // Read: master, gradient, both moments; written: all but the gradient, and a packed copy.
  constexpr double kBytesOfValue = 4 + 8 + 8 + 4 + 8 + 2;
  const double share = core_share(ranks, machine);
  const RateCurve& add = machine.of(RowOp::add);
  const double row_rate = kRowOpBytes[static_cast<std::size_t>(RowOp::add)] / add.values.back();
  if (work.adapter_flops > 0) {
    add_plain(cost, machine,
              {"adapters", std::nullopt, work.adapter_flops, "flop",
               share * work.adapter_flops * adapter_flop_seconds(machine), "products.bf16"});
  }
  add_plain(cost, machine,
            {"optimizer", std::nullopt, work.trained_values, "number",
             share * work.trained_values * kBytesOfValue / row_rate, "row_ops.add"});
  if (work.sum_bytes <= 0) return;
  const bool is_far = ranks.nodes() > 1;
  const LinkRates& link = is_far ? *machine.between : *machine.inside;
  add_plain(cost, machine,
            {"sums", Phase::wait, work.sum_bytes, "byte",
             work.sum_bytes * ranks.on_node() / link_rate(link, ranks.on_node()),
             is_far ? "between" : "inside"});
}

/// What is done with rows between products.
void add_rows(StepCost& cost, const StepWork& work, const MachineRates& machine, double share) {
  for (const StepWork::Rows& rows : work.rows) {
    const auto op = static_cast<std::size_t>(rows.op);
    const double numbers = rows.times * rows.numbers;
    add_plain(
        cost, machine,
        {fmt::format("{}.{}", kPhaseNames[static_cast<std::size_t>(rows.phase)], kRowOpNames[op]),
         rows.phase, numbers, "number", share * numbers * machine.of(rows.op).at(rows.numbers),
         fmt::format("row_ops.{}", kRowOpNames[op])});
  }
}

void add_routing(StepCost& cost, const StepWork& work, const MachineRates& machine, double share) {
  const RoutingRates& routing = machine.routing;
  add_plain(cost, machine,
            {"route.scores", Phase::route, work.scores, "score",
             share * work.scores * routing.score_seconds, "routing.score_seconds"});
  add_plain(cost, machine,
            {"route.choices", Phase::route, work.choices, "choice",
             share * work.choices * routing.choice_seconds, "routing.choice_seconds"});
  add_plain(cost, machine,
            {"dispatch.plan", Phase::dispatch, work.planned, "choice",
             work.planned * routing.plan_seconds, "routing.plan_seconds"});
}

/// What does not depend on how much there is to do.
void add_calls(StepCost& cost, const StepWork& work, const MachineRates& machine) {
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    const auto add = [&](std::string_view what, double quantity, const char* unit, double seconds) {
      add_plain(cost, machine,
                {fmt::format("{}.{}", kPhaseNames[i], what), phase, quantity, unit,
                 quantity * seconds, fmt::format("calls.{}_seconds", unit)});
    };
    add("jobs", work.jobs[i], "job", machine.calls.job_seconds);
    add("calls", work.calls[i], "product", machine.calls.product_seconds);
    add("groups", work.groups[i], "group", machine.calls.group_seconds);
  }
}

/// The time of the CPU's experts in layers with others on a GPU.
double seconds_beside(const StepWork& work, const StepWork::GpuLayers& there,
                      const MachineRates& machine, double share) {
  StepCost cost;
  ProductTerms products(cost, work, machine, share);
  for (std::size_t i = 0; i < there.num_products; ++i) {
    products.add(work.products[there.first_product + i]);
  }
  return cost.seconds() + there.product_calls * machine.calls.product_seconds +
         there.groups * machine.calls.group_seconds;
}

/// What GPUs take longer than the CPU beside them, each part in proportion.
void add_gpus(StepCost& cost, const StepWork& work, const MachineRates& machine, double share) {
  for (const StepWork::GpuLayers& there : work.gpus) {
    const GpuSeconds seconds = gpu_seconds(there, machine);
    const double all = seconds.total();
    const double shown =
        all > 0 ? std::max(0.0, 1 - seconds_beside(work, there, machine, share) / all) : 0;
    const auto add = [&](std::string name, double quantity, const char* unit, double time,
                         const char* field) {
      add_plain(cost, machine,
                {std::move(name), Phase::experts, quantity, unit, shown * time, field});
    };
    add("gpu.calls", there.calls, "call", seconds.calls, "gpu.call_seconds");
    add("gpu.waits", there.waits, "wait", seconds.waits, "gpu.wait_seconds");
    add("gpu.up", there.bytes_up, "byte", seconds.up, "gpu.upload_bytes_per_second");
    add("gpu.down", there.bytes_down, "byte", seconds.down, "gpu.download_bytes_per_second");
    double flops = 0;
    double bytes = 0;
    for (const StepWork::GpuLayers::Kernels& kernels : there.kernels) {
      flops += kernels.flops;
      bytes += kernels.weight_bytes;
    }
    if (seconds.products > seconds.reads) {
      add("gpu.products", flops, "flop", seconds.products, "gpu.flops_per_second");
    } else {
      add("gpu.reads", bytes, "byte", seconds.reads, "gpu.read_bytes_per_second");
    }
  }
}

void add_attention(StepCost& cost, const StepWork& work, const MachineRates& machine,
                   double share) {
  const double flop_seconds =
      share * work.attention_flops / machine.attention_flops_per_second.at(work.head_dim);
  const double read_seconds = share * work.cache_bytes / machine.memory_bytes_per_second();
  if (flop_seconds > read_seconds) {
    return add_plain(
        cost, machine,
        {"attention", Phase::attention, work.attention_flops, "flop", flop_seconds, "attention"});
  }
  add_plain(cost, machine,
            {"attention.cache", Phase::attention, work.cache_bytes, "byte", read_seconds, "reads"});
}

}  // namespace

double StepCost::seconds() const {
  return std::accumulate(terms.begin(), terms.end(), 0.0,
                         [](double sum, const CostTerm& part) { return sum + part.seconds; });
}

PhaseTimes StepCost::phases() const {
  PhaseTimes times;
  for (const CostTerm& part : terms) {
    if (part.phase) times[*part.phase] += part.seconds;
  }
  return times;
}

const std::string& StepCost::bound() const {
  return std::ranges::max_element(terms, {}, &CostTerm::seconds)->name;
}

OverlapShares overlap_shares(double compute, double transfer) {
  constexpr double kPower = 3;
  const double both = std::pow(std::pow(compute, kPower) + std::pow(transfer, kPower), 1 / kPower);
  if (both == 0) return {};
  // c (c / b)^(p - 1) + t (t / b)^(p - 1) = b
  return {std::pow(compute / both, kPower - 1), std::pow(transfer / both, kPower - 1)};
}

StepCost step_cost(const StepWork& work, const CostRanks& ranks, const MachineRates& machine) {
  require_links(work, ranks, machine);
  StepCost cost;
  const double share = core_share(ranks, machine);
  ProductTerms products(cost, work, machine, share);
  for (const StepWork::Product& product : work.products) products.add(product);
  add_gpus(cost, work, machine, share);
  add_attention(cost, work, machine, share);
  add_rows(cost, work, machine, share);
  add_routing(cost, work, machine, share);
  add_calls(cost, work, machine);
  if (ranks.ranks > 1) add_exchange(cost, work, ranks, machine);
  if (work.hides_links) hide_links(cost);
  add_training(cost, work, ranks, machine);
  return cost;
}

}  // namespace moesaic
