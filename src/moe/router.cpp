#include "src/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace moesaic {
namespace {

struct Choice {
  std::int32_t expert;
  float value;
};

/// NaN counts as smaller than everything.
bool larger(float a, float b) {
  return a > b || (std::isnan(b) && !std::isnan(a));
}

/// What experts are chosen by.
struct Values {
  std::span<const float> scores;
  std::span<const float> bias;  // or none

  float operator[](std::size_t expert) const {
    return bias.empty() ? scores[expert] : scores[expert] + bias[expert];
  }
};

/// The largest choices so far, descending, equal ones in the order in which they came.
class Largest {
 public:
  explicit Largest(std::span<Choice> places) : places_(places) {}

  void offer(std::size_t id, float value) {
    if (count_ == places_.size() && !larger(value, places_.back().value)) return;
    std::size_t place = count_ < places_.size() ? count_++ : places_.size() - 1;
    for (; place > 0 && larger(value, places_[place - 1].value); --place) {
      places_[place] = places_[place - 1];
    }
    places_[place] = {static_cast<std::int32_t>(id), value};
  }

 private:
  std::span<Choice> places_;
  std::size_t count_ = 0;
};

/// Of the experts [first, first + count).
float group_score(const Values& values, GroupScore kind, std::size_t first, std::size_t count) {
  std::array<Choice, 2> storage;
  const std::size_t summed = kind == GroupScore::two_largest ? 2 : 1;
  const std::span<Choice> places(storage);
  Largest largest(places.first(summed));
  for (std::size_t expert = first; expert < first + count; ++expert) {
    largest.offer(expert, values[expert]);
  }
  return summed == 2 ? storage[0].value + storage[1].value : storage[0].value;
}

/// Calls with the first expert of each group that may be chosen from, ascending.
template <typename Call>
void for_each_kept_group(const Values& values, const RouterOptions& options, const Call& call) {
  if (options.num_groups == 1) return call(0);
  const auto size = values.scores.size() / static_cast<std::size_t>(options.num_groups);
  std::array<Choice, kMostGroups> storage;
  const auto kept = std::span(storage).first(static_cast<std::size_t>(options.kept_groups));
  Largest largest(kept);
  for (std::size_t first = 0; first < values.scores.size(); first += size) {
    largest.offer(first, group_score(values, options.group_score, first, size));
  }
  std::ranges::sort(kept, {}, &Choice::expert);
  for (const Choice& group : kept) call(static_cast<std::size_t>(group.expert));
}

void take_largest(const Values& values, const RouterOptions& options, std::span<Choice> chosen) {
  const auto size = values.scores.size() / static_cast<std::size_t>(options.num_groups);
  Largest largest(chosen);
  for_each_kept_group(values, options, [&](std::size_t first) {
    for (std::size_t expert = first; expert < first + size; ++expert) {
      largest.offer(expert, values[expert]);
    }
  });
}

/// Those of `given`, in the same order.
void take_given(const Values& values, std::span<const ExpertId> given, std::span<Choice> chosen) {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto expert = static_cast<std::int32_t>(given[i]);
    chosen[i] = {expert, values[static_cast<std::size_t>(expert)]};
  }
  std::ranges::stable_sort(
      chosen, [](const Choice& a, const Choice& b) { return larger(a.value, b.value); });
}

void make_scores(std::span<float> logits, ExpertScores kind, const VectorKernels& vector) {
  const auto count = static_cast<std::int64_t>(logits.size());
  if (kind == ExpertScores::softmax) vector.softmax(logits.data(), count);
  if (kind == ExpertScores::sigmoid) vector.sigmoid(logits.data(), count);
}

/// The values of the chosen, which are their scores, become their weights.
void make_weights(const RouterOptions& options, const VectorKernels& vector,
                  std::span<Choice> chosen) {
  if (options.scores == ExpertScores::logits) {
    std::array<float, kMostChosen> values;
    for (std::size_t i = 0; i < chosen.size(); ++i) values[i] = chosen[i].value;
    vector.softmax(values.data(), static_cast<std::int64_t>(chosen.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].value = values[i];
  } else if (options.normalize) {
    float sum = 0;
    for (const Choice& choice : chosen) sum += choice.value;
    sum = std::max(sum + options.sum_offset, options.least_sum);  // NaN stays
    for (Choice& choice : chosen) choice.value /= sum;
  }
  for (Choice& choice : chosen) choice.value *= options.scale;
}

}  // namespace

void choose_experts(const TokenChoice& token, const RouterOptions& options,
                    const VectorKernels& vector) {
  make_scores(token.scores, options.scores, vector);
  const Values values{token.scores, token.choice_bias};
  std::array<Choice, kMostChosen> storage;
  const std::span<Choice> chosen(storage.data(), token.experts.size());
  token.given.empty() ? take_largest(values, options, chosen)
                      : take_given(values, token.given, chosen);
  for (Choice& choice : chosen) {
    choice.value = token.scores[static_cast<std::size_t>(choice.expert)];
  }
  make_weights(options, vector, chosen);
  std::ranges::sort(chosen, {}, &Choice::expert);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    token.experts[i] = ExpertId{chosen[i].expert};
    token.weights[i] = chosen[i].value;
  }
}

Router::Router(const PackedMatrix& weights, const RouterOptions& options, const Compute& compute,
               const RouterBiases& biases)
    : weights_(weights), biases_(biases), options_(options), compute_(compute) {
  for (const std::span<const float> bias : {biases.logits, biases.choice}) {
    require(bias.empty() || std::ssize(bias) == weights.rows, ErrorKind::internal,
            "a router of {} experts has a bias of {}", weights.rows, bias.size());
  }
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
  const float* const bias = biases_.logits.empty() ? nullptr : biases_.logits.data();
  const GemmGroup group{.num_rows = tokens, .weights = weights_, .epilogue = {.bias = bias}};
  gemm.run(scratch.rows.of(x), {&group, 1},
           output_of(scratch.scores.matrix(tokens, num_experts())));

  compute_.pool->for_each_row(tokens, [&](std::int64_t t) {
    const auto first = static_cast<std::size_t>(t * options_.topk);
    const auto count = static_cast<std::size_t>(options_.topk);
    choose_experts({.scores = {scratch.scores.data() + t * num_experts(),
                               static_cast<std::size_t>(num_experts())},
                    .choice_bias = biases_.choice,
                    .given = given.empty() ? given : given.subspan(first, count),
                    .experts = std::span(routing.experts).subspan(first, count),
                    .weights = std::span(routing.weights).subspan(first, count)},
                   options_, *compute_.vector);
  });
}

}  // namespace moesaic
