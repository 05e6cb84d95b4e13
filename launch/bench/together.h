#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "comm/communicator.h"
#include "launch/bench/roofs.h"

namespace moesaic {

/// All ranks at the same work, which is repeated: the mean of the times of the slowest rank, less
/// the fifth that takes longest. A long run gets the mean and no lucky time; what takes longest has
/// had to wait for others on the machine.
class Together {
 public:
  /// `budget`: seconds for all repetitions; there are at least five, of what takes longer two,
  /// after one that warms up. Without a budget that one is all, for tests.
  Together(Communicator& world, double budget) : world_(world), budget_(budget) {}

  /// Of one `work`, which is done `times` times between two barriers. Collective.
  [[nodiscard]] double seconds(const std::function<void()>& work, int times = 1) const {
    const auto all = [&] {
      for (int i = 0; i < times; ++i) work();
    };
    double sum = time_together(world_, all);  // warms up, and counts against the budget
    if (budget_ == 0) return sum / times;
    std::vector<double> samples;
    while (sum < budget_ || samples.size() < (sum < kLongAfter * budget_ ? 5 : 2)) {
      samples.push_back(time_together(world_, all));  // the same on all ranks
      sum += samples.back();
    }
    std::ranges::sort(samples);
    samples.resize(samples.size() - samples.size() / 5);
    const double all_of_them = std::reduce(samples.begin(), samples.end());
    return all_of_them / static_cast<double>(samples.size()) / times;
  }

 private:
  static constexpr double kLongAfter = 2;  // budgets
  Communicator& world_;
  double budget_;  // seconds
};

}  // namespace moesaic
