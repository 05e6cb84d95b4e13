#include "launch/study/study_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/counter_random.h"
#include "base/error.h"

namespace moesaic {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

FitSamples samples_of(const std::vector<FitPoint>& points,
                      const std::function<bool(const FitPoint&)>& takes) {
  FitSamples samples;
  for (const FitPoint& point : points) {
    if (!takes(point)) continue;
    samples.amounts.push_back(point.amounts);
    samples.seconds.push_back(mean(point.samples));
  }
  return samples;
}

double error_of(const FitPoint& point, const std::vector<double>& rates) {
  return std::abs(told_seconds(point.amounts, rates) / mean(point.samples) - 1);
}

/// Draws points, and of each as many repetitions as it has, with replacement.
FitSamples draw(const std::vector<FitPoint>& points, const CounterRandom& random) {
  FitSamples samples;
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
    samples.amounts.push_back(point.amounts);
    samples.seconds.push_back(mean(seconds));
  }
  return samples;
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

StudyFit::StudyFit(std::vector<FitPoint> points, int rounds) : points_(std::move(points)) {
  constexpr std::size_t kFewest = 3;
  constexpr std::uint64_t kSeed = 13;
  require(points_.size() >= kFewest, ErrorKind::usage,
          "{} measured points are too few to fit rates to: {} at least", points_.size(), kFewest);
  rates_ = fit_nonnegative(samples_of(points_, [](const FitPoint&) { return true; }));
  const CounterRandom random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    drawn_.push_back(fit_nonnegative(draw(points_, random.at(static_cast<std::uint64_t>(round)))));
  }
  for (const FitPoint& point : points_) {
    const auto others = samples_of(points_, [&](const FitPoint& p) { return &p != &point; });
    left_out_.push_back(error_of(point, fit_nonnegative(others)));
  }
  const std::int64_t most = std::ranges::max_element(points_, {}, &FitPoint::ranks)->ranks;
  const FitSamples fewer = samples_of(points_, [&](const FitPoint& p) { return p.ranks < most; });
  if (fewer.seconds.empty()) return;
  const std::vector<double> rates = fit_nonnegative(fewer);
  for (const FitPoint& point : points_) {
    if (point.ranks == most) largest_out_ = std::max(largest_out_, error_of(point, rates));
  }
}

WithInterval StudyFit::rate(std::size_t i) const {
  std::vector<double> drawn;
  for (const std::vector<double>& rates : drawn_) drawn.push_back(rates[i]);
  return interval(rates_[i], std::move(drawn));
}

WithInterval StudyFit::predict(const std::vector<double>& amounts) const {
  std::vector<double> drawn;
  for (const std::vector<double>& rates : drawn_) drawn.push_back(told_seconds(amounts, rates));
  return interval(told_seconds(amounts, rates_), std::move(drawn));
}

}  // namespace moesaic
