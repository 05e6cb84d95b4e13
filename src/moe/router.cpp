#include "src/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace moesaic {
namespace {

struct Choice {
  std::int32_t expert;
  float weight;
};

/// NaN counts as smaller than everything.
bool larger(float a, float b) {
  return a > b || (std::isnan(b) && !std::isnan(a));
}

/// The largest scores, descending, equal ones in ascending expert id.
void take_largest(std::span<const float> scores, std::span<Choice> chosen) {
  std::size_t count = 0;
  for (std::size_t expert = 0; expert < scores.size(); ++expert) {
    const float score = scores[expert];
    if (count == chosen.size() && !larger(score, chosen.back().weight)) continue;
    std::size_t place = count < chosen.size() ? count++ : chosen.size() - 1;
    for (; place > 0 && larger(score, chosen[place - 1].weight); --place) {
      chosen[place] = chosen[place - 1];
    }
    chosen[place] = {static_cast<std::int32_t>(expert), score};
  }
}

/// Those of `given`, in the same order.
void take_given(std::span<const float> scores, std::span<const ExpertId> given,
                std::span<Choice> chosen) {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto expert = static_cast<std::int32_t>(given[i]);
    chosen[i] = {expert, scores[static_cast<std::size_t>(expert)]};
  }
  std::ranges::stable_sort(
      chosen, [](const Choice& a, const Choice& b) { return larger(a.weight, b.weight); });
}

void take(std::span<const float> scores, std::span<const ExpertId> given,
          std::span<Choice> chosen) {
  given.empty() ? take_largest(scores, chosen) : take_given(scores, given, chosen);
}

}  // namespace

void choose_experts(std::span<float> scores, const RouterOptions& options,
                    const VectorKernels& vector, std::span<ExpertId> experts,
                    std::span<float> weights, std::span<const ExpertId> given) {
  std::array<Choice, kMostChosen> storage;
  const std::span<Choice> chosen(storage.data(), experts.size());
  if (options.softmax_over_all) {
    vector.softmax(scores.data(), static_cast<std::int64_t>(scores.size()));
    take(scores, given, chosen);
    if (options.normalize) {
      float sum = 0;
      for (const Choice& choice : chosen) sum += choice.weight;
      for (Choice& choice : chosen) choice.weight /= sum;
    }
  } else {
    take(scores, given, chosen);
    std::array<float, kMostChosen> values;
    for (std::size_t i = 0; i < chosen.size(); ++i) values[i] = chosen[i].weight;
    vector.softmax(values.data(), static_cast<std::int64_t>(chosen.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].weight = values[i];
  }
  std::ranges::sort(chosen, {}, &Choice::expert);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    experts[i] = ExpertId{chosen[i].expert};
    weights[i] = chosen[i].weight;
  }
}

Router::Router(const PackedMatrix& weights, const RouterOptions& options, const Compute& compute)
    : weights_(weights), options_(options), compute_(compute) {
  require(options.topk >= 1 && options.topk <= weights.rows && options.topk <= kMostChosen,
          ErrorKind::file, "{} experts a token cannot be chosen from {} (at most {} are supported)",
          options.topk, weights.rows, kMostChosen);
}

void Router::route(MatrixView<const float> x, GroupedGemm& gemm, RouterScratch& scratch,
                   Routing& routing, std::span<const ExpertId> given) const {
  const std::int64_t tokens = x.rows();
  routing.num_tokens = tokens;
  routing.topk = options_.topk;
  routing.experts.resize(static_cast<std::size_t>(tokens * options_.topk));
  routing.weights.resize(routing.experts.size());
  scratch.scores.reserve(tokens * num_experts());
  const GemmGroup group{.num_rows = tokens, .weights = weights_};
  gemm.run(scratch.rows.of(x), {&group, 1},
           output_of(scratch.scores.matrix(tokens, num_experts())));

  compute_.pool->for_each_row(tokens, [&](std::int64_t t) {
    const auto first = static_cast<std::size_t>(t * options_.topk);
    const auto count = static_cast<std::size_t>(options_.topk);
    choose_experts(
        {scratch.scores.data() + t * num_experts(), static_cast<std::size_t>(num_experts())},
        options_, *compute_.vector, std::span(routing.experts).subspan(first, count),
        std::span(routing.weights).subspan(first, count),
        given.empty() ? given : given.subspan(first, count));
  });
}

}  // namespace moesaic
