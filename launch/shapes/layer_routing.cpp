#include "launch/shapes/layer_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "src/parallel/expert_popularity.h"

namespace moesaic {
namespace {

constexpr std::uint64_t kSeed = 5;

/// [0, 1)
double draw(std::mt19937_64& random) {
  return std::ldexp(static_cast<double>(random() >> 11), -53);
}

/// Experts in random order, of falling popularity: the popular ones are not all on one rank.
std::vector<std::int32_t> shuffled_experts(std::int64_t count) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(count));
  std::iota(experts.begin(), experts.end(), 0);
  std::mt19937_64 random(kSeed);
  for (std::size_t i = experts.size(); i > 1; --i) std::swap(experts[i - 1], experts[random() % i]);
  return experts;
}

}  // namespace

std::string_view routing_name(RoutingKind kind) noexcept {
  if (kind == RoutingKind::hot_rank) return "hot_rank";
  return kind == RoutingKind::even ? "even" : "skewed";
}

std::vector<RoutingKind> routing_kinds(RoutingChoice choice) {
  switch (choice) {
    case RoutingChoice::both:
      return {RoutingKind::even, RoutingKind::skewed};
    case RoutingChoice::even:
      return {RoutingKind::even};
    case RoutingChoice::skewed:
      return {RoutingKind::skewed};
    case RoutingChoice::hot_rank:
      return {RoutingKind::hot_rank};
  }
  return {};
}

LayerRouting::LayerRouting(RoutingKind kind, const LayerShape& shape, std::int64_t num_tokens,
                           std::int64_t hot_experts)
    : shape_(shape), num_tokens_(num_tokens) {
  if (kind == RoutingKind::skewed) {
    draw_skewed();
  } else {
    deal(kind == RoutingKind::hot_rank ? hot_experts : shape.experts);
  }
  sort_tokens();
}

LayerRouting::LayerRouting(const LayerShape& shape, std::int64_t num_tokens,
                           std::vector<double> rates, std::uint64_t seed)
    : shape_(shape), num_tokens_(num_tokens) {
  ExpertDraw draw(std::move(rates), shape.topk);
  const CounterRandom random(seed);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    const std::span<const ExpertId> chosen =
        draw.next(random.at(static_cast<std::uint64_t>(token)));
    experts_.insert(experts_.end(), chosen.begin(), chosen.end());
  }
}

void LayerRouting::deal(std::int64_t hot_experts) {
  std::vector<std::int32_t> order = shuffled_experts(shape_.experts);
  const auto others = std::stable_partition(
      order.begin(), order.end(), [&](std::int32_t expert) { return expert < hot_experts; });
  // Choices in turn: a token's are different, and each expert gets as many as the others.
  const std::int64_t hot_choices = std::min(shape_.topk, hot_experts);
  const std::int64_t other_choices = shape_.topk - hot_choices;
  const auto deal_to_token = [&](auto first, std::int64_t experts, std::int64_t next,
                                 std::int64_t choices) {
    for (const std::int64_t end = next + choices; next < end; ++next) {
      experts_.push_back(ExpertId{first[next % experts]});
    }
  };
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    deal_to_token(order.begin(), hot_experts, token * hot_choices, hot_choices);
    deal_to_token(others, shape_.experts - hot_experts, token * other_choices, other_choices);
  }
}

void LayerRouting::draw_skewed() {
  const std::vector<std::int32_t> order = shuffled_experts(shape_.experts);
  std::mt19937_64 random(kSeed + 1);
  // The smallest of exponentially distributed times, of rates 1, 1/2, 1/3, ..., are a draw without
  // repetition (Efraimidis and Spirakis 2006).
  std::vector<std::pair<double, std::int32_t>> times(order.size());
  const auto topk = static_cast<std::ptrdiff_t>(shape_.topk);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      times[i] = {-std::log(1 - draw(random)) * static_cast<double>(i + 1), order[i]};
    }
    std::ranges::partial_sort(times, times.begin() + topk);
    for (auto time = times.begin(); time != times.begin() + topk; ++time) {
      experts_.push_back(ExpertId{time->second});
    }
  }
}

void LayerRouting::sort_tokens() {
  for (auto first = experts_.begin(); first != experts_.end(); first += shape_.topk) {
    std::sort(first, first + shape_.topk);
  }
}

LayerRouting LayerRouting::rotated(const ExpertPlacement& placement, std::int64_t by) const {
  LayerRouting result = *this;
  for (ExpertId& expert : result.experts_) {
    const int rank = placement.rank_of(expert);
    const auto slot = static_cast<std::int64_t>(placement.slot_of(expert));
    expert = ExpertId{static_cast<std::int32_t>(placement.experts_start_idx(rank) +
                                                (slot + by) % placement.num_local_experts(rank))};
  }
  result.sort_tokens();
  return result;
}

std::vector<std::int64_t> LayerRouting::rows_of_experts() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(shape_.experts));
  for (const ExpertId expert : experts_) ++rows[static_cast<std::size_t>(expert)];
  return rows;
}

void LayerRouting::write_logits(std::int64_t first_token, MatrixView<float> x) const {
  constexpr float kChosen = 6;  // more than other logits by so much that rounding does not matter
  std::mt19937_64 random(kSeed + 2);
  for (std::int64_t token = 0; token < x.rows(); ++token) {
    const std::span<float> logits = x.row(token).first(static_cast<std::size_t>(shape_.experts));
    for (float& logit : logits) logit = static_cast<float>(2 * draw(random) - 1);
    for (std::int64_t k = 0; k < shape_.topk; ++k) {
      const auto choice = static_cast<std::size_t>((first_token + token) * shape_.topk + k);
      logits[static_cast<std::size_t>(experts_[choice])] += kChosen;
    }
  }
}

}  // namespace moesaic
