#include "src/parallel/step_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace moesaic {
namespace {

double weights_of(const std::vector<CostWeights>& parts) {
  double sum = 0;
  for (const CostWeights& part : parts) sum += part.weights;
  return sum;
}

/// Adds the products of `rows` rows with each of the weights.
void add_products(StepWork& work, Phase phase, const std::vector<CostWeights>& weights,
                  double rows) {
  if (rows <= 0) return;
  for (const CostWeights& with : weights) {
    work.products.push_back({.phase = phase, .with = with, .rows = rows});
  }
}

double& of(std::array<double, kNumPhases>& phases, Phase phase) {
  return phases[static_cast<std::size_t>(phase)];
}

/// Numbers of f32 that a layer reads and writes for a row beside its products, each read or written
/// counted: norms (2 of a row's length), residuals (3), rows for the experts (1.5: they leave as
/// bf16), sums of results; and once each what stands between the products of a part.
void add_rows(StepWork& work, const CostModel& model, const CostLayer& layer, double rows) {
  const auto hidden = static_cast<double>(model.hidden);
  const auto topk = static_cast<double>(model.experts_per_token);
  const auto add = [&](Phase phase, double numbers) {
    of(work.row_bytes, phase) += 4 * rows * numbers;
  };
  if (!layer.mixer.empty()) {
    add(Phase::attention, 5 * hidden + 2 * weights_of(layer.mixer) / hidden);
  }
  add(Phase::mlp, weights_of(layer.common) / hidden);
  if (layer.expert.empty()) return add(Phase::mlp, 5 * hidden);
  add(Phase::dispatch, 1.5 * hidden);
  add(Phase::experts, topk * weights_of(layer.expert) / hidden);
  add(Phase::combine, (topk + 6) * hidden);
}

/// Calls with which a layer hands work to its threads.
void add_jobs(StepWork& work, const CostLayer& layer) {
  // Norm, projections, rotation, attention, output.
  if (!layer.mixer.empty()) of(work.jobs, Phase::attention) += 5;
  if (!layer.common.empty()) of(work.jobs, Phase::mlp) += 2;
  if (layer.expert.empty()) return;
  of(work.jobs, Phase::route) += 1;
  of(work.jobs, Phase::dispatch) += 1;
  of(work.jobs, Phase::experts) += 2;  // gate and up, down
  of(work.jobs, Phase::combine) += 3;  // sums, residual, norm
}

/// The parts of a step that every rank does alike.
StepWork common_work(const CostModel& model, const CostStep& step) {
  StepWork work;
  work.attention_flops = step.attention_flops;
  work.cache_bytes = step.cache_bytes;
  for (const CostLayer& layer : model.layers) {
    add_products(work, Phase::attention, layer.mixer, step.rows);
    add_products(work, Phase::route, layer.router, step.rows);
    add_products(work, Phase::mlp, layer.common, step.rows);
    add_rows(work, model, layer, step.rows);
    add_jobs(work, layer);
  }
  add_products(work, Phase::head, model.head, step.logits_rows);
  if (!model.head.empty()) of(work.jobs, Phase::head) += 2;
  return work;
}

/// A layer with experts that stands for others, and for how many.
struct LayerGroup {
  std::int64_t layer;   // among those with experts
  std::int64_t number;  // in the model
  const CostLayer* of_model;
  double layers;
};

/// Layers with experts are alike but for which experts are popular: some stand for all.
std::vector<LayerGroup> layer_groups(const CostModel& model) {
  constexpr std::int64_t kMostDrawn = 8;
  std::vector<std::int64_t> layers;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    if (!model.layers[l].expert.empty()) layers.push_back(static_cast<std::int64_t>(l));
  }
  std::vector<LayerGroup> groups;
  const std::int64_t drawn = std::min<std::int64_t>(kMostDrawn, std::ssize(layers));
  for (std::int64_t i = 0; i < drawn; ++i) {
    const std::int64_t layer = i * std::ssize(layers) / drawn;
    const std::int64_t number = layers[static_cast<std::size_t>(layer)];
    groups.push_back({.layer = layer,
                      .number = number,
                      .of_model = &model.layers[static_cast<std::size_t>(number)],
                      .layers = static_cast<double>(layers.size()) / static_cast<double>(drawn)});
  }
  return groups;
}

/// What the tokens of a step ask of the layers of `group`.
ExpertQuestion question_of(const CostModel& model, const CostRanks& ranks, const CostStep& step,
                           const LayerGroup& group) {
  return {.experts = model.num_experts,
          .topk = model.experts_per_token,
          .tokens = std::max<std::int64_t>(1, std::llround(step.rows * ranks.sharers())),
          .placement = model.placement ? &model.placement->of_layer(group.number) : nullptr,
          .wire = model.wire};
}

/// Adds the work for the experts of the layers of `group`.
void add_experts(const LayerGroup& group, const LayerLoad& load, StepWork& work) {
  for (const auto& [rows, times] : load.busiest) {
    for (const CostWeights& with : group.of_model->expert) {
      work.products.push_back({.phase = Phase::experts,
                               .with = with,
                               .rows = static_cast<double>(rows),
                               .times = times * group.layers});
    }
  }
  work.node_bytes += group.layers * load.node_near_bytes;
  work.link_bytes += group.layers * load.node_far_bytes;
  work.node_messages += group.layers * load.near_messages;
  work.link_messages += group.layers * load.far_messages;
}

/// A token's part of what all `tokens` send, mean over the groups, of which there are `count`.
void add_traffic(const LayerLoad& load, double count, double tokens, ExpertTraffic& traffic) {
  const double share = 1 / (count * tokens);
  traffic.rows += load.rows * share;
  traffic.results += load.results * share;
  traffic.dispatch_bytes += load.dispatch_bytes * share;
  traffic.combine_bytes += load.combine_bytes * share;
  traffic.inter_node_bytes += load.far_bytes * share;
  traffic.messages += load.far_messages / count;
}

/// What is done between products, `factor` times.
void scale_rows(StepWork& work, double factor) {
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    work.row_bytes[i] *= factor;
    work.jobs[i] *= factor;
  }
}

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

void add_products(StepCost& cost, const StepWork& work, const MachineRates& machine, double share) {
  for (const StepWork::Product& product : work.products) {
    const Format format = product.with.format;
    const auto curve = machine.products.find(format);
    require(curve != machine.products.end(), ErrorKind::usage, "{}: {} was not measured",
            machine.path, format_name(format));
    const std::string name =
        fmt::format("{}.{}{}", kPhaseNames[static_cast<std::size_t>(product.phase)],
                    format_name(format), product.is_transposed ? ".back" : "");
    CostTerm& part = term(cost, {name, product.phase}, "flop",
                          fmt::format("{}: products.{}{}", machine.path, format_name(format),
                                      product.is_transposed ? ", as fast transposed" : ""));
    part.quantity += 2 * product.times * product.rows * product.with.weights;
    part.seconds +=
        share * product.times * curve->second.seconds(product.rows, product.with.weights);
  }
}

/// What is not a product: `quantity` at `rate` a second.
struct PlainTerm {
  std::string name;
  std::optional<Phase> phase;
  double quantity;
  const char* unit;
  double seconds;
  const char* field;  // of the machine's file
};

void add_plain(StepCost& cost, const MachineRates& machine, const PlainTerm& plain) {
  if (plain.quantity <= 0) return;
  CostTerm& part = term(cost, {plain.name, plain.phase}, plain.unit,
                        fmt::format("{}: {}", machine.path, plain.field));
  part.quantity = plain.quantity;
  part.seconds = plain.seconds;
}

const LinkRates& need(const std::optional<LinkRates>& link, const MachineRates& machine,
                      std::string_view what) {
  require(link.has_value(), ErrorKind::usage,
          "{}: rows between {} were not measured; start moesaic doctor --measure with several of "
          "them",
          machine.path, what);
  return *link;
}

/// `on_node`: ranks of a node that send at the same time.
double link_rate(const LinkRates& link, int on_node) {
  return on_node == 1 ? link.one_rank_bytes_per_second : link.all_ranks_bytes_per_second;
}

void add_exchange(StepCost& cost, const StepWork& work, const CostRanks& ranks,
                  const MachineRates& machine) {
  const int on_node = ranks.on_node();
  if (work.node_messages > 0) {
    const LinkRates& link = need(machine.inside, machine, "ranks of a node");
    add_plain(cost, machine,
              {"node.messages", Phase::wait, work.node_messages, "message",
               work.node_messages * link.latency_seconds, "inside"});
    add_plain(cost, machine,
              {"node.bytes", Phase::wait, work.node_bytes, "byte",
               work.node_bytes / link_rate(link, on_node), "inside"});
  }
  if (work.link_messages > 0) {
    const LinkRates& link = need(machine.between, machine, "nodes");
    add_plain(cost, machine,
              {"link.messages", Phase::wait, work.link_messages, "message",
               work.link_messages * link.latency_seconds, "between"});
    add_plain(cost, machine,
              {"link.bytes", Phase::wait, work.link_bytes, "byte",
               work.link_bytes / link_rate(link, on_node), "between"});
  }
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
  if (work.adapter_flops > 0) {
    add_plain(cost, machine,
              {"adapters", std::nullopt, work.adapter_flops, "flop",
               share * work.adapter_flops * adapter_flop_seconds(machine), "products.bf16"});
  }
  add_plain(cost, machine,
            {"optimizer", std::nullopt, work.trained_values, "number",
             share * work.trained_values * kBytesOfValue / machine.row_bytes_per_second,
             "row_bytes_per_second"});
  if (work.sum_bytes <= 0) return;
  const bool is_far = ranks.nodes() > 1;
  const LinkRates& link = is_far ? need(machine.between, machine, "nodes")
                                 : need(machine.inside, machine, "ranks of a node");
  add_plain(cost, machine,
            {"sums", Phase::wait, work.sum_bytes, "byte",
             work.sum_bytes * ranks.on_node() / link_rate(link, ranks.on_node()),
             is_far ? "between" : "inside"});
}

}  // namespace

double StepWork::weight_bytes() const {
  double sum = 0;
  for (const Product& product : products) sum += product.times * product.with.bytes;
  return sum;
}

double StepWork::flops() const {
  double sum = 0;
  for (const Product& product : products) {
    sum += 2 * product.times * product.rows * product.with.weights;
  }
  return sum;
}

StepEstimate estimate_step(const CostModel& model, const CostRanks& ranks, const CostStep& step,
                           const ExpertPopularity& popularity) {
  StepEstimate estimate{.work = common_work(model, step), .traffic = {}};
  const std::vector<LayerGroup> groups = layer_groups(model);
  const auto count = static_cast<double>(groups.size());
  for (const LayerGroup& group : groups) {
    const ExpertQuestion question = question_of(model, ranks, step, group);
    const LayerLoad load =
        draw_load(question, ranks, popularity.rates(group.layer, model.num_experts), group.layer);
    add_experts(group, load, estimate.work);
    add_traffic(load, count, static_cast<double>(question.tokens), estimate.traffic);
    estimate.work.rows_max_over_mean += (load.max_over_mean - 1) / count;
  }
  return estimate;
}

StepMessages estimate_messages(const CostModel& model, const CostRanks& ranks, const CostStep& step,
                               const ExpertPopularity& popularity) {
  StepMessages messages;
  for (const LayerGroup& group : layer_groups(model)) {
    messages.each = group.layers;
    messages.layers.push_back(draw_messages(question_of(model, ranks, step, group), ranks,
                                            popularity.rates(group.layer, model.num_experts),
                                            group.layer));
  }
  return messages;
}

StepWork training_work(const StepWork& forward, const CostStep& pass,
                       const CostTraining& training) {
  const double again = training.recomputes ? 1 : 0;
  StepWork step = forward;
  step.products.clear();
  for (StepWork::Product product : forward.products) {
    const double times = training.passes * product.times;
    product.times = times * (product.phase == Phase::head ? 1 : 1 + again);
    step.products.push_back(product);
    product.times = times;
    product.is_transposed = true;
    step.products.push_back(product);
  }
  step.attention_flops *= training.passes * (1 + again + 2.5);
  scale_rows(step, training.passes * (3 + again));  // back: as much read, twice as much written
  for (double* sent :
       {&step.node_messages, &step.link_messages, &step.node_bytes, &step.link_bytes}) {
    *sent *= training.passes * (2 + again);
  }
  // Two forward, two for the gradient of the input, two for those of the factors.
  step.adapter_flops =
      training.passes * (6 + 2 * again) * pass.rows *
      (training.row_factors + forward.rows_max_over_mean * training.choice_factors);
  step.trained_values = training.values;
  step.sum_bytes = training.sum_bytes;
  return step;
}

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

StepCost step_cost(const StepWork& work, const CostRanks& ranks, const MachineRates& machine) {
  StepCost cost;
  const double share = core_share(ranks, machine);
  add_products(cost, work, machine, share);
  const double flop_seconds = share * work.attention_flops / machine.attention_flops_per_second;
  const double read_seconds = share * work.cache_bytes / machine.read_bytes_per_second;
  if (flop_seconds > read_seconds) {
    add_plain(cost, machine,
              {"attention", Phase::attention, work.attention_flops, "flop", flop_seconds,
               "attention_flops_per_second"});
  } else {
    add_plain(cost, machine,
              {"attention.cache", Phase::attention, work.cache_bytes, "byte", read_seconds,
               "read_bytes_per_second"});
  }
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    add_plain(cost, machine,
              {fmt::format("{}.rows", kPhaseNames[i]), phase, work.row_bytes[i], "byte",
               share * work.row_bytes[i] / machine.row_bytes_per_second, "row_bytes_per_second"});
    add_plain(cost, machine,
              {fmt::format("{}.jobs", kPhaseNames[i]), phase, work.jobs[i], "job",
               work.jobs[i] * machine.job_seconds, "job_seconds"});
  }
  if (ranks.ranks > 1) add_exchange(cost, work, ranks, machine);
  add_training(cost, work, ranks, machine);
  return cost;
}

}  // namespace moesaic
