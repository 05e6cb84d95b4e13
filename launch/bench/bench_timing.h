#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace moesaic {

/// Seconds of one run of `work`, by this thread's clock.
[[nodiscard]] double time_once(const std::function<void()>& work);

/// Calls `run`, which returns its seconds, until they add up to `budget` and there are two of them.
/// The first run warms caches and scratch memory up: it does not count unless it alone takes longer
/// than `budget`. Returns the seconds that count.
[[nodiscard]] std::vector<double> repeat(double budget, const std::function<double()>& run);

/// What this share of `samples`, of which there are some, does not exceed.
[[nodiscard]] double not_exceeded_by(double share, std::vector<double> samples);

/// What a quarter of `samples` do not exceed: a time with little of what others on the machine
/// took, and no lucky one either.
[[nodiscard]] double lower_quartile(std::vector<double> samples);

/// How much longer something takes than something else that was measured in turn with it: what
/// their lower quartiles differ by. Nothing where the lower quarter of either spreads over as much,
/// so that others on the machine may have made the difference.
[[nodiscard]] std::optional<double> longer_by(const std::vector<double>& longer,
                                              const std::vector<double>& shorter);

}  // namespace moesaic
