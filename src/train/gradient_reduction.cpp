#include "src/train/gradient_reduction.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "base/error.h"

namespace moesaic {
namespace {

/// Squares of a factor's sums: element i in lane i % 16, then the lanes in their order.
double sum_of_squares(std::span<const std::int64_t> sums) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto value = static_cast<double>(sums[i]);
    lanes[i % lanes.size()] += value * value;
  }
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

}  // namespace

GradientReduction::GradientReduction(const AdapterSet& set, std::span<const AdapterSpec> all,
                                     const TrainRanks& ranks)
    : set_(set), all_(all), ranks_(ranks), counts_experts_(ranks.replicas.rank() == 0) {
  std::unordered_map<std::string, std::int64_t> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    places[all[i].site.module] = static_cast<std::int64_t>(i);
  }
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const auto found = places.find(set.spec(i).site.module);
    require(found != places.end(), ErrorKind::internal, "{} is not an adapter of the model",
            set.spec(i).site.module);
    places_.push_back(found->second);
  }
}

std::int64_t GradientReduction::not_finite(const AdapterGradients& gradients) const {
  if (const auto adapter = gradients.not_finite()) {
    return places_[static_cast<std::size_t>(*adapter)];
  }
  // What all ranks add to must stay inside 64 bits.
  const std::int64_t limit = (std::int64_t{1} << 62) / ranks_.world.size();
  for (std::int64_t i = 0; i < set_.size(); ++i) {
    const AdapterPlace& place = set_.places()[static_cast<std::size_t>(i)];
    for (const FactorPlace& factor : {place.a, place.b}) {
      for (const std::int64_t sum : gradients.sums().subspan(
               static_cast<std::size_t>(factor.first), static_cast<std::size_t>(factor.size()))) {
        if (std::abs(sum) > limit) return places_[static_cast<std::size_t>(i)];
      }
    }
  }
  return -1;
}

std::optional<std::string> GradientReduction::sum(AdapterGradients& gradients) const {
  std::int64_t broken = not_finite(gradients);
  ranks_.world.max({&broken, 1});
  if (broken >= 0) return all_[static_cast<std::size_t>(broken)].site.module;
  const auto common = static_cast<std::size_t>(set_.num_common_values());
  if (ranks_.world.size() > 1) ranks_.world.sum(gradients.sums().first(common));
  if (ranks_.replicas.size() > 1) ranks_.replicas.sum(gradients.sums().subspan(common));
  return std::nullopt;
}

double GradientReduction::norm(const AdapterGradients& gradients, ThreadPool& pool) const {
  // One number a factor, at its place in the model, from one rank: sums of bit patterns with zeros
  // then gather them, and all ranks add them in one order.
  std::vector<std::int64_t> squares(all_.size() * 2);
  pool.for_each(set_.size(), 1, [&](std::int64_t i) {
    const bool counts = i < set_.num_common() ? ranks_.world.rank() == 0 : counts_experts_;
    if (!counts) return;
    const AdapterPlace& place = set_.places()[static_cast<std::size_t>(i)];
    const auto at = static_cast<std::size_t>(places_[static_cast<std::size_t>(i)] * 2);
    const auto sums_of = [&](const FactorPlace& factor) {
      return gradients.sums().subspan(static_cast<std::size_t>(factor.first),
                                      static_cast<std::size_t>(factor.size()));
    };
    if (!set_.spec(i).shares_a) {
      squares[at] = std::bit_cast<std::int64_t>(sum_of_squares(sums_of(place.a)));
    }
    squares[at + 1] = std::bit_cast<std::int64_t>(sum_of_squares(sums_of(place.b)));
  });
  ranks_.world.sum(squares);
  double total = 0;
  for (const std::int64_t square : squares) total += std::bit_cast<double>(square);
  return std::sqrt(total);
}

}  // namespace moesaic
