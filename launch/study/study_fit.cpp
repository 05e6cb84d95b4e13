#include "launch/study/study_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/counter_random.h"
#include "base/error.h"
#include "src/parallel/step_cost.h"

namespace moesaic {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Seconds of the terms from `first` on, `count` of them.
double part_seconds(const std::vector<double>& amounts, const std::vector<double>& rates,
                    std::size_t first, std::size_t count) {
  double seconds = 0;
  for (std::size_t i = first; i < first + count; ++i) seconds += amounts[i] * rates[i];
  return seconds;
}

/// The amounts of a point as they count at these rates, where some terms go on behind others.
std::vector<double> counted_amounts(const std::vector<double>& amounts, const TermOverlap& overlap,
                                    const std::vector<double>& rates) {
  std::vector<double> counted = amounts;
  const auto& [num_computing, first_link, num_links] = overlap;
  if (num_links == 0) return counted;
  const OverlapShares counts = overlap_shares(part_seconds(amounts, rates, 0, num_computing),
                                              part_seconds(amounts, rates, first_link, num_links));
  for (std::size_t i = 0; i < num_computing; ++i) counted[i] *= counts.compute;
  for (std::size_t i = first_link; i < first_link + num_links; ++i) counted[i] *= counts.transfer;
  return counted;
}

double told(const std::vector<double>& amounts, const TermOverlap& overlap,
            const std::vector<double>& rates) {
  return told_seconds(counted_amounts(amounts, overlap, rates), rates);
}

/// What a fit is made to: points, and what each took.
struct Taken {
  std::vector<const FitPoint*> points;
  std::vector<double> seconds;
};

/// How much of a term counts depends on the rates themselves: they are fitted again and again, each
/// time half way to where the last ones lead.
std::vector<double> fit_rates(const Taken& taken, const UsualRates& usual) {
  constexpr int kRounds = 40;
  FitSamples samples{.amounts = {}, .seconds = taken.seconds};
  for (const FitPoint* point : taken.points) samples.amounts.push_back(point->amounts);
  std::vector<double> rates = fit_nonnegative(samples, usual);
  const auto hides = [](const FitPoint* point) { return point->overlap.num_links > 0; };
  if (std::ranges::none_of(taken.points, hides)) return rates;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < taken.points.size(); ++i) {
      const FitPoint& point = *taken.points[i];
      samples.amounts[i] = counted_amounts(point.amounts, point.overlap, rates);
    }
    const std::vector<double> next = fit_nonnegative(samples, usual);
    for (std::size_t i = 0; i < rates.size(); ++i) rates[i] = (rates[i] + next[i]) / 2;
  }
  return rates;
}

Taken taken_of(const std::vector<FitPoint>& points,
               const std::function<bool(const FitPoint&)>& takes) {
  Taken taken;
  for (const FitPoint& point : points) {
    if (!takes(point)) continue;
    taken.points.push_back(&point);
    taken.seconds.push_back(mean(point.samples));
  }
  return taken;
}

double error_of(const FitPoint& point, const std::vector<double>& rates) {
  return std::abs(told(point.amounts, point.overlap, rates) / mean(point.samples) - 1);
}

/// Draws points, and of each as many repetitions as it has, with replacement.
Taken draw(const std::vector<FitPoint>& points, const CounterRandom& random) {
  Taken taken;
  std::uint64_t drawn = 0;
  const auto index = [&](std::size_t count) {
    return static_cast<std::size_t>(random.unit(drawn++) * static_cast<double>(count));
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const FitPoint& point = points[index(points.size())];
    std::vector<double> seconds;
    for (std::size_t s = 0; s < point.samples.size(); ++s) {
      seconds.push_back(point.samples[index(point.samples.size())]);
    }
    taken.points.push_back(&point);
    taken.seconds.push_back(mean(seconds));
  }
  return taken;
}

WithInterval interval(double value, std::vector<double> drawn) {
  if (drawn.empty()) return {value, value, value};
  std::ranges::sort(drawn);
  const auto at = [&](double share) {
    return drawn[static_cast<std::size_t>(share * static_cast<double>(drawn.size() - 1) + 0.5)];
  };
  return {value, std::min(value, at(0.025)), std::max(value, at(0.975))};
}

}  // namespace

StudyFit::StudyFit(std::vector<FitPoint> points, UsualRates usual, int rounds)
    : points_(std::move(points)), usual_(std::move(usual)) {
  constexpr std::size_t kFewest = 3;
  constexpr std::uint64_t kSeed = 13;
  require(points_.size() >= kFewest, ErrorKind::usage,
          "{} measured points are too few to fit rates to: {} at least", points_.size(), kFewest);
  rates_ = fit_rates(taken_of(points_, [](const FitPoint&) { return true; }), usual_);
  const CounterRandom random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    drawn_.push_back(
        fit_rates(draw(points_, random.at(static_cast<std::uint64_t>(round))), usual_));
  }
  for (const FitPoint& point : points_) {
    const Taken others = taken_of(points_, [&](const FitPoint& p) { return &p != &point; });
    left_out_.push_back(error_of(point, fit_rates(others, usual_)));
  }
  const std::int64_t most = std::ranges::max_element(points_, {}, &FitPoint::ranks)->ranks;
  const Taken fewer = taken_of(points_, [&](const FitPoint& p) { return p.ranks < most; });
  if (fewer.seconds.empty()) return;
  const std::vector<double> rates = fit_rates(fewer, usual_);
  for (const FitPoint& point : points_) {
    if (point.ranks == most) largest_out_ = std::max(largest_out_, error_of(point, rates));
  }
}

bool StudyFit::is_measured(std::size_t i) const {
  return std::ranges::any_of(points_, [i](const FitPoint& point) { return point.amounts[i] > 0; });
}

WithInterval StudyFit::rate(std::size_t i) const {
  std::vector<double> drawn;
  for (const std::vector<double>& rates : drawn_) drawn.push_back(rates[i]);
  return interval(rates_[i], std::move(drawn));
}

double StudyFit::part_seconds(const std::vector<double>& amounts, std::size_t first,
                              std::size_t count) const {
  return moesaic::part_seconds(amounts, rates_, first, count);
}

WithInterval StudyFit::predict(const std::vector<double>& amounts,
                               const TermOverlap& overlap) const {
  std::vector<double> drawn;
  for (const std::vector<double>& rates : drawn_) drawn.push_back(told(amounts, overlap, rates));
  return interval(told(amounts, overlap, rates_), std::move(drawn));
}

}  // namespace moesaic
