#include "launch/bench/bench_timing.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace moesaic {

double time_once(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<double> repeat(double budget, const std::function<double()>& run) {
  constexpr std::size_t kLeastRuns = 2;
  std::vector<double> samples;
  const double first = run();
  if (first > budget) samples.push_back(first);
  for (double spent = first > budget ? first : 0; spent < budget || samples.size() < kLeastRuns;) {
    spent += samples.emplace_back(run());
  }
  return samples;
}

double not_exceeded_by(double share, std::vector<double> samples) {
  const double last = static_cast<double>(samples.size() - 1);
  const auto place = samples.begin() + static_cast<std::ptrdiff_t>(share * last);
  std::nth_element(samples.begin(), place, samples.end());
  return *place;
}

double lower_quartile(std::vector<double> samples) {
  return not_exceeded_by(0.25, std::move(samples));
}

std::optional<double> longer_by(const std::vector<double>& longer,
                                const std::vector<double>& shorter) {
  const double difference = lower_quartile(longer) - lower_quartile(shorter);
  const auto spread = [](const std::vector<double>& samples) {
    return lower_quartile(samples) - *std::ranges::min_element(samples);
  };
  if (difference <= 0 || difference <= std::max(spread(longer), spread(shorter))) {
    return std::nullopt;
  }
  return difference;
}

}  // namespace moesaic
