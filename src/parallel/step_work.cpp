#include "src/parallel/step_work.h"

#include <algorithm>
#include <cmath>

#include "kernels/streamed_results.h"
#include "src/parallel/gpu_work.h"

namespace moesaic {
namespace {

double& of(std::array<double, kNumPhases>& phases, Phase phase) {
  return phases[static_cast<std::size_t>(phase)];
}

/// Whether results of so many f32 in all go past the caches.
bool are_streamed(double numbers) {
  return 4 * numbers >= static_cast<double>(kCachedBytes);
}

/// Adds the products of `rows` rows with each of the weights, a call each.
void add_products(StepWork& work, Phase phase, const std::vector<CostWeights>& weights,
                  double rows) {
  if (rows <= 0) return;
  for (const CostWeights& with : weights) {
    work.products.push_back({.phase = phase,
                             .with = with,
                             .rows = rows,
                             .is_streamed = are_streamed(rows * with.results)});
    of(work.calls, phase) += 1;
  }
}

void add(StepWork& work, const StepWork::Rows& rows) {
  if (rows.numbers > 0) work.rows.push_back(rows);
}

/// What is done with `rows` rows in a mixer, and before and after it.
void add_mixer_rows(StepWork& work, const CostModel& model, const CostLayer& layer, double rows) {
  constexpr Phase kPhase = Phase::attention;
  const double hidden = rows * static_cast<double>(model.hidden);
  add(work, {kPhase, RowOp::norm, hidden, 2});  // and that of the feed-forward part
  add(work, {kPhase, RowOp::head_norm, rows * layer.normed});
  add(work, {kPhase, RowOp::rotate, rows * layer.rotated});
  add(work, {kPhase, RowOp::store, rows * layer.stored});
  add(work, {kPhase, RowOp::copy, rows * layer.heads, 2});
  add(work, {kPhase, RowOp::attend, rows * layer.heads});
  add(work, {kPhase, RowOp::add, hidden});
  of(work.jobs, kPhase) += 5;  // norm, heads, attention, residual, norm
}

/// A layer's feed-forward part.
struct FeedForwardRows {
  double rows;
  bool is_model;    // it adds to a residual stream
  bool sums_there;  // GPUs sum the results of experts
};

/// The same in the feed-forward part.
void add_feed_forward_rows(StepWork& work, const CostModel& model, const CostLayer& layer,
                           const FeedForwardRows& part) {
  const double rows = part.rows;
  const double hidden = rows * static_cast<double>(model.hidden);
  const auto topk = static_cast<double>(model.experts_per_token);
  const Phase last = layer.expert.empty() ? Phase::mlp : Phase::combine;
  if (part.is_model) {
    add(work, {last, RowOp::add, hidden});
    add(work, {last, RowOp::look, hidden});
    of(work.jobs, last) += 1;
  }
  if (layer.expert.empty()) return;
  if (!layer.common.empty()) {
    add(work, {Phase::mlp, RowOp::add, hidden});
    of(work.jobs, Phase::mlp) += 1;
  }
  work.scores += rows * static_cast<double>(model.num_experts);
  work.choices += rows * topk;
  add(work, {Phase::dispatch, RowOp::round, hidden});
  of(work.jobs, Phase::route) += 1;
  of(work.jobs, Phase::dispatch) += 1;
  if (part.sums_there) return;
  add(work, {Phase::combine, RowOp::sum, hidden * topk});
  of(work.jobs, Phase::combine) += 1;
}

/// What a step does before its layers and after them.
void add_ends(StepWork& work, const CostModel& model, const CostStep& step) {
  if (model.head.empty()) return;
  const auto hidden = static_cast<double>(model.hidden);
  add(work, {Phase::attention, RowOp::copy, step.rows * hidden});
  add(work, {Phase::attention, RowOp::look, step.rows * hidden});
  add(work, {Phase::attention, RowOp::angle, step.rows * static_cast<double>(model.angles)});
  add(work, {Phase::head, RowOp::norm, step.logits_rows * hidden});
  add_products(work, Phase::head, model.head, step.logits_rows);
  const double logits = step.logits_rows * static_cast<double>(model.vocabulary);
  if (model.scales_logits) add(work, {Phase::head, RowOp::add, logits});
  add(work,
      {Phase::head, RowOp::sample, step.sampled_rows * static_cast<double>(model.vocabulary)});
  of(work.jobs, Phase::attention) += 1;
  of(work.jobs, Phase::head) += 2;
}

double bytes_of(const std::vector<CostWeights>& parts) {
  double sum = 0;
  for (const CostWeights& part : parts) sum += part.bytes;
  return sum;
}

/// Weights in the node's memory of a rank that has an equal share of the experts.
double held_bytes(const CostModel& model, const CostRanks& ranks) {
  double sum = bytes_of(model.head);
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const CostLayer& layer = model.layers[l];
    const double own =
        (static_cast<double>(model.num_experts) - experts_on_gpus(model, l)) / ranks.sharers();
    sum += bytes_of(layer.mixer) + bytes_of(layer.router) + bytes_of(layer.common) +
           own * bytes_of(layer.expert);
  }
  return sum;
}

/// The parts of a step that every rank does alike.
StepWork common_work(const CostModel& model, const CostRanks& ranks, const CostStep& step) {
  StepWork work;
  work.attention_flops = step.attention_flops;
  work.head_dim = static_cast<double>(model.head_dim);
  work.cache_bytes = step.cache_bytes;
  work.held_bytes = held_bytes(model, ranks);
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const CostLayer& layer = model.layers[l];
    add_products(work, Phase::attention, layer.mixer, step.rows);
    add_products(work, Phase::route, layer.router, step.rows);
    add_products(work, Phase::mlp, layer.common, step.rows);
    if (!layer.mixer.empty()) add_mixer_rows(work, model, layer, step.rows);
    add_feed_forward_rows(work, model, layer,
                          {.rows = step.rows,
                           .is_model = !model.head.empty(),
                           .sums_there = sums_on_gpu(model, ranks, l)});
  }
  add_ends(work, model, step);
  return work;
}

/// A layer with experts that stands for others, and for how many.
struct LayerGroup {
  std::int64_t layer;   // among those with experts
  std::int64_t number;  // in the model
  const CostLayer* of_model;
  double layers;
};

/// Layers with experts are alike but for which experts are popular: where tokens have to be drawn,
/// some stand for all.
std::vector<LayerGroup> layer_groups(const CostModel& model, const ExpertPopularity& popularity) {
  constexpr std::int64_t kMostDrawn = 8;
  std::vector<std::int64_t> layers;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    if (!model.layers[l].expert.empty()) layers.push_back(static_cast<std::int64_t>(l));
  }
  std::vector<LayerGroup> groups;
  const std::int64_t drawn = popularity.has_choices()
                                 ? std::ssize(layers)
                                 : std::min<std::int64_t>(kMostDrawn, std::ssize(layers));
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
          .tokens = std::max<std::int64_t>(1, std::llround(step.all_rows(ranks.sharers()))),
          .texts = step.texts,
          .placement = model.placement ? &model.placement->of_layer(group.number) : nullptr,
          .wire = model.wire,
          .on_gpus =
              model.gpus ? &model.gpus->experts[static_cast<std::size_t>(group.number)] : nullptr};
}

/// Adds the work for the experts of the layers of `group`, all of them in a call each.
void add_cpu_experts(const CostModel& model, const LayerGroup& group, const LayerLoad& load,
                     StepWork& work) {
  double all_rows = 0;
  double met = 0;
  for (const auto& [rows, times] : load.busiest) {
    all_rows += times * static_cast<double>(rows);
    met += times;
  }
  const bool is_streamed = are_streamed(all_rows * static_cast<double>(model.hidden));
  for (const auto& [rows, times] : load.busiest) {
    for (const CostWeights& with : group.of_model->expert) {
      work.products.push_back({.phase = Phase::experts,
                               .with = with,
                               .rows = static_cast<double>(rows),
                               .times = times * group.layers,
                               .is_rounded = model.rounds_rows,
                               .is_streamed = is_streamed});
    }
  }
  of(work.calls, Phase::experts) += met > 0 ? group.layers : 0;
  of(work.groups, Phase::experts) += group.layers * met;
  work.planned += group.layers * all_rows;
}

/// The same wherever they are, and what travels for them.
void add_experts(const CostModel& model, const CostRanks& ranks, const LayerGroup& group,
                 const LayerLoad& load, StepWork& work) {
  const std::size_t first = work.products.size();
  const double met = of(work.groups, Phase::experts);
  add_cpu_experts(model, group, load, work);
  if (!load.busiest_gpu.empty()) {
    StepWork::GpuLayers& there = work.gpus.emplace_back(
        gpu_layers(model, ranks, {static_cast<std::size_t>(group.number), group.layers}, load));
    there.first_product = first;
    there.num_products = work.products.size() - first;
    there.product_calls = there.num_products > 0 ? group.layers : 0;
    there.groups = of(work.groups, Phase::experts) - met;
    work.planned += group.layers * planned_for_gpu(model, ranks, load);
  }
  work.node_bytes += group.layers * load.node_near_bytes;
  work.link_bytes += group.layers * load.node_far_bytes;
  work.node_messages += group.layers * load.near_messages;
  work.link_messages += group.layers * 2.0 * (ranks.sharer_nodes() - 1);  // there and back
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
  for (StepWork::Rows& rows : work.rows) rows.times *= factor;
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    work.jobs[i] *= factor;
    work.calls[i] *= factor;
    work.groups[i] *= factor;
  }
  work.planned *= factor;
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

double StepWork::row_bytes() const {
  double sum = 0;
  for (const Rows& part : rows) {
    sum += part.times * part.numbers * kRowOpBytes[static_cast<std::size_t>(part.op)];
  }
  for (const Product& product : products) {
    sum += product.times * product.rows * product.with.gated *
           kRowOpBytes[static_cast<std::size_t>(RowOp::gate)];
  }
  return sum;
}

bool hides_links(const CostStep& step) {
  constexpr double kLeastRows = 64;  // as those that are halved (src/model/half_batches.h)
  return step.rows >= kLeastRows;
}

StepEstimate estimate_step(const CostModel& model, const CostRanks& ranks, const CostStep& step,
                           const ExpertPopularity& popularity) {
  StepEstimate estimate{.work = common_work(model, ranks, step), .traffic = {}};
  estimate.work.hides_links = hides_links(step);
  const std::vector<LayerGroup> groups = layer_groups(model, popularity);
  const auto count = static_cast<double>(groups.size());
  for (const LayerGroup& group : groups) {
    const ExpertQuestion question = question_of(model, ranks, step, group);
    const LayerLoad load = draw_load(question, ranks, popularity, group.layer);
    add_experts(model, ranks, group, load, estimate.work);
    add_traffic(load, count, static_cast<double>(question.tokens), estimate.traffic);
    estimate.work.rows_max_over_mean += (load.max_over_mean - 1) / count;
  }
  return estimate;
}

StepMessages estimate_messages(const CostModel& model, const CostRanks& ranks, const CostStep& step,
                               const ExpertPopularity& popularity) {
  StepMessages messages;
  for (const LayerGroup& group : layer_groups(model, popularity)) {
    messages.each = group.layers;
    messages.layers.push_back(
        draw_messages(question_of(model, ranks, step, group), ranks, popularity, group.layer));
  }
  return messages;
}

StepWork training_work(const StepWork& forward, const CostStep& pass,
                       const CostTraining& training) {
  const double again = training.recomputes ? 1 : 0;
  StepWork step = forward;
  step.hides_links = false;
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
  step.scores *= training.passes * (1 + again);
  step.choices *= training.passes * (1 + again);
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

}  // namespace moesaic
