#include "launch/study/point_terms.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rounding.h"
#include "launch/options/option_table.h"
#include "launch/plan/cost_model.h"
#include "launch/shapes/job_options.h"
#include "launch/shapes/shape_point.h"

namespace moesaic {
namespace {

bool is_prompt(const Options& options) {
  return options.job == StudyJob::prompt;
}

bool is_fine_tuning(const Options& options) {
  return options.job == StudyJob::sft;
}

/// Of the rank that has most.
std::int64_t sequences_of_rank(const PointPlan& point) {
  return divide_up(point.options.sequences, point.ranks.ranks);
}

RankSamples samples_of_rank(const PointPlan& point) {
  return rank_samples(point.options.sequences, point.options.point_prompt, point.ranks,
                      point.options.batch_size);
}

/// Forward passes of a repetition, or, of fine-tuning, passes forward and back.
double steps_of(const PointPlan& point) {
  if (is_fine_tuning(point.options)) return 2 * samples_of_rank(point).passes;
  if (is_shape_job(point.options.job)) {
    return static_cast<double>(shape_point(point.options, point.ranks.ranks).passes);
  }
  const std::int64_t tokens = sequence_tokens(point.options);
  if (!is_prompt(point.options)) return static_cast<double>(tokens);
  // A rank has one prompt at a time.
  return static_cast<double>(sequences_of_rank(point) *
                             divide_up(tokens, point.options.batch_size));
}

double sum(const std::array<double, kNumPhases>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

double flops_of(const StepWork& work, Format format, bool is_transposed) {
  double flops = 0;
  for (const StepWork::Product& product : work.products) {
    if (product.with.format != format || product.is_transposed != is_transposed) continue;
    flops += 2 * product.times * product.rows * product.with.weights;
  }
  return flops;
}

/// Of the terms of some exchanges; of all of them where nothing tells these apart.
std::string named(const std::string& terms, const std::string& which) {
  return which.empty() ? terms : terms + "." + which;
}

}  // namespace

std::string how_text(const std::vector<std::string>& names, const Options& options) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const OptionRow& row = *find_option(name, Verb::study_point);
    parts.push_back(fmt::format("{}-{}", name, value_text(row, options)));
  }
  return fmt::format("{}", fmt::join(parts, "."));
}

PointTerms::PointTerms(const PointModel& model, TermChoice choice)
    : model_(model), choice_(std::move(choice)) {
  const bool trains = choice_.trains;
  for (const Format format : choice_.formats) {
    names_.push_back({fmt::format("products.{}", format_name(format)), "s/flop",
                      "products with weights of this format, by core", 1e-11});
    if (!trains) continue;
    names_.push_back({fmt::format("products.{}.back", format_name(format)), "s/flop",
                      "products with these weights transposed, by core", 1e-11});
  }
  names_.push_back({"weights", "s/byte", "reads of weights, by core", 5e-11});
  names_.push_back({"attention", "s/flop", "attention without its projections, by core", 2e-11});
  names_.push_back({"rows", "s/byte", "norms, gates and sums between products, by core", 1e-10});
  names_.push_back({"jobs", "s/job", "work handed to threads", 2e-6});
  if (trains) {
    names_.push_back(
        {"adapters", "s/flop", "adapters and their factors' gradients, by core", 2e-11});
    names_.push_back({"optimizer", "s/number", "numbers that are trained, by core", 1e-9});
  }
  for (const std::string& how : choice_.hows) {
    names_.push_back(
        {named("node", how) + ".messages", "s/message", "between ranks of a node", 2e-6});
    names_.push_back(
        {named("node", how) + ".bytes", "s/byte", "between ranks of a node, by node", 1e-10});
  }
  for (const TermChoice::Way& way : choice_.ways) {
    names_.push_back({link_term(way) + ".messages", "s/message", "between nodes", 5e-5});
    names_.push_back({link_term(way) + ".bytes", "s/byte", "between nodes, by node"});
  }
  if (trains) names_.push_back({"sums", "s/byte", "gradients of common adapters, by rank"});
  names_.push_back({"steps", "s/step", "what each pass takes besides", 1e-4});
}

UsualRates PointTerms::usual() const {
  UsualRates usual{.seconds = {}, .num_computing = num_computing_terms()};
  for (const TermName& name : names_) usual.seconds.push_back(name.usual);
  return usual;
}

TermChoice::Way PointTerms::way(const PointPlan& point) const {
  return {point.link, how_text(choice_.differing, point.options)};
}

std::string PointTerms::node_term(const PointPlan& point) const {
  return named("node", way(point).how);
}

std::string PointTerms::link_term(const PointPlan& point) const {
  return link_term(way(point));
}

std::string PointTerms::link_term(const TermChoice::Way& way) const {
  const bool is_one = std::ranges::all_of(
      choice_.ways, [&](const TermChoice::Way& other) { return other.link == way.link; });
  return named(named("link", is_one ? "" : way.link), way.how);
}

double PointTerms::passes(const PointPlan& point) {
  return steps_of(point);
}

StepMessages PointTerms::messages(const PointPlan& point,
                                  const ExpertPopularity& popularity) const {
  return estimate_messages(model_.cost, point.ranks, step(point), popularity);
}

double PointTerms::tokens(const PointPlan& point) {
  if (is_shape_job(point.options.job)) {
    const std::int64_t tokens = shape_point(point.options, point.ranks.ranks).rank_tokens();
    return static_cast<double>(tokens * point.ranks.ranks);
  }
  return static_cast<double>(point.options.sequences * sequence_tokens(point.options));
}

CostStep PointTerms::step(const PointPlan& point) const {
  const Options& options = point.options;
  if (is_shape_job(options.job)) {
    const auto rows = static_cast<double>(shape_point(options, point.ranks.ranks).pass_tokens);
    return {.rows = rows, .logits_rows = 0};
  }
  if (is_fine_tuning(options)) {
    return sample_pass(options, *model_.config, samples_of_rank(point), options.point_prompt);
  }
  const double steps = steps_of(point);
  const std::int64_t sequences = sequences_of_rank(point);
  const std::int64_t tokens = sequence_tokens(options);
  const bool prompt = is_prompt(options);
  const MixerWork mixing =
      pass_work(*model_.config, options.precision,
                {.sequences = sequences,
                 .first = 0,
                 .tokens = tokens,
                 .at_once = prompt ? std::min(tokens, options.batch_size) : 1});
  return {.rows = static_cast<double>(sequences * tokens) / steps,
          .logits_rows = static_cast<double>(sequences) / (prompt ? steps : 1),
          .attention_flops = mixing.flops / steps,
          .cache_bytes = prompt ? 0 : mixing.cache_bytes / steps,
          .texts = point.ranks.texts_of_sharers(options.sequences)};
}

StepWork PointTerms::work(const PointPlan& point, const ExpertPopularity& popularity) const {
  const CostStep pass = step(point);
  StepWork forward = estimate_step(model_.cost, point.ranks, pass, popularity).work;
  if (!is_fine_tuning(point.options)) return forward;
  return training_work(
      forward, pass,
      training_of(point.options, *model_.adapters, point.ranks, samples_of_rank(point)));
}

std::vector<double> PointTerms::amounts(const PointPlan& point,
                                        const ExpertPopularity& popularity) const {
  const StepWork work = this->work(point, popularity);
  const double steps = is_fine_tuning(point.options) ? 1 : steps_of(point);
  // Exchanges alone compute nothing.
  const bool computes = point.options.job != StudyJob::exchange;
  const double by_core = computes ? steps * point.core_share / point.ranks.threads : 0;
  std::vector<double> amounts;
  for (const Format format : choice_.formats) {
    amounts.push_back(by_core * flops_of(work, format, false));
    if (choice_.trains) amounts.push_back(by_core * flops_of(work, format, true));
  }
  amounts.push_back(by_core * (work.weight_bytes() + work.cache_bytes));
  amounts.push_back(by_core * work.attention_flops);
  amounts.push_back(by_core * work.row_bytes());
  amounts.push_back(computes ? steps * (sum(work.jobs) + sum(work.calls)) : 0);
  if (choice_.trains) {
    amounts.push_back(by_core * work.adapter_flops);
    amounts.push_back(by_core * work.trained_values);
  }
  const TermChoice::Way own = way(point);
  for (const std::string& how : choice_.hows) {
    const double times = how == own.how ? steps : 0;
    amounts.push_back(times * work.node_messages);
    amounts.push_back(times * work.node_bytes);
  }
  for (const TermChoice::Way& way : choice_.ways) {
    const double times = way == own ? steps : 0;
    amounts.push_back(times * work.link_messages);
    amounts.push_back(times * work.link_bytes);
  }
  if (choice_.trains) amounts.push_back(work.sum_bytes);
  amounts.push_back(steps_of(point));
  return amounts;
}

TermOverlap PointTerms::overlap(const PointPlan& point) const {
  const bool waits = point.options.job == StudyJob::exchange || is_fine_tuning(point.options);
  if (waits || !hides_links(step(point))) return {};
  const std::size_t computing = num_computing_terms();
  return {.num_computing = computing,
          .first_link = computing + 2 * choice_.hows.size(),  // behind those of ranks of a node
          .num_links = 2 * choice_.ways.size()};
}

std::vector<Format> formats_of(const CostModel& model) {
  std::set<Format> formats;
  const auto take = [&](const std::vector<CostWeights>& parts) {
    for (const CostWeights& part : parts) formats.insert(part.format);
  };
  take(model.head);
  for (const CostLayer& layer : model.layers) {
    for (const auto* parts : {&layer.mixer, &layer.router, &layer.common, &layer.expert}) {
      take(*parts);
    }
  }
  return {formats.begin(), formats.end()};
}

}  // namespace moesaic
