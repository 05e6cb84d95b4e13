#include "src/train/gradient_reduction.h"

#include <algorithm>
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

/// Sums over `ranks` what lies in `parts`, and nothing else: pieces of them travel together.
void sum_parts(Communicator& ranks, std::span<const std::span<std::int64_t>> parts) {
  if (parts.size() == 1) return ranks.sum(parts.front());
  constexpr std::size_t kAtOnce = std::size_t{1} << 19;
  std::vector<std::int64_t> values;
  std::vector<std::span<std::int64_t>> pieces;  // that `values` are of
  const auto sum = [&] {
    ranks.sum(values);
    auto from = values.cbegin();
    for (const std::span<std::int64_t> piece : pieces) {
      std::copy_n(from, piece.size(), piece.begin());
      from += std::ssize(piece);
    }
    values.clear();
    pieces.clear();
  };
  for (const std::span<std::int64_t> part : parts) {
    for (std::size_t done = 0; done < part.size(); done += pieces.back().size()) {
      if (values.size() == kAtOnce) sum();
      const std::size_t count = std::min(part.size() - done, kAtOnce - values.size());
      pieces.push_back(part.subspan(done, count));
      values.insert(values.end(), pieces.back().begin(), pieces.back().end());
    }
  }
  if (!values.empty()) sum();
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
  if (ranks_.replicas.size() > 1) sum_experts(gradients);
  return std::nullopt;
}

/// Of experts that nobody had a row for, all replicas have zeros already.
void GradientReduction::sum_experts(AdapterGradients& gradients) const {
  std::vector<std::int64_t> touched;  // [adapters of experts]
  for (std::int64_t i = set_.num_common(); i < set_.size(); ++i) {
    const auto adapter = static_cast<std::int32_t>(i);
    const bool is_touched =
        gradients.touched(adapter, Factor::a) || gradients.touched(adapter, Factor::b);
    touched.push_back(is_touched ? 1 : 0);
  }
  ranks_.replicas.max(touched);
  std::vector<std::span<std::int64_t>> parts;
  std::int64_t end = 0;  // of the last part; an A that adapters share stands once
  const auto add = [&](const FactorPlace& place) {
    if (place.first < end) return;
    const auto first = static_cast<std::size_t>(place.first);
    const auto size = static_cast<std::size_t>(place.size());
    if (place.first == end && !parts.empty()) {
      parts.back() = {parts.back().data(), parts.back().size() + size};
    } else {
      parts.push_back(gradients.sums().subspan(first, size));
    }
    end = place.first + place.size();
  };
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i] == 0) continue;
    const AdapterPlace& place = set_.places()[i + static_cast<std::size_t>(set_.num_common())];
    add(place.a);
    add(place.b);
  }
  sum_parts(ranks_.replicas, parts);
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
