#pragma once

#include <cstdint>
#include <vector>

#include "base/rounding.h"

namespace moesaic {

/// In which order samples are trained, whatever the ranks: every epoch has each of them once, in an
/// order that depends on the seed and the epoch alone. An epoch ends with a smaller step if its
/// samples do not fill the last one.
class SampleOrder {
 public:
  struct Options {
    std::int64_t samples = 0;
    std::int64_t batch = 0;  // samples a step
    std::uint64_t seed = 0;
    bool shuffle = true;
  };
  explicit SampleOrder(const Options& options) : options_(options) {}

  [[nodiscard]] std::int64_t steps_per_epoch() const {
    return divide_up(options_.samples, options_.batch);
  }
  /// The samples of a step, counted from 0 over all epochs.
  [[nodiscard]] std::vector<std::int64_t> step(std::int64_t step);

 private:
  void make_epoch(std::int64_t epoch);

  Options options_;
  std::int64_t epoch_ = -1;  // of order_
  std::vector<std::int64_t> order_;
};

/// How many of `samples` a share is: their product, rounded down; a product that is a whole number
/// but for the rounding of doubles is that number (0.29 of 100 is 29).
[[nodiscard]] std::int64_t count_of_share(double share, std::int64_t samples);
/// The same, rounded up: steps of so many epochs (0.07 of 100 are 7).
[[nodiscard]] std::int64_t steps_of_epochs(double epochs, std::int64_t steps_per_epoch);

/// `set` split in two: the samples that are trained, and `count` that are held out, drawn by the
/// seed; both keep their order.
struct HeldOut {
  std::vector<std::int64_t> trained;
  std::vector<std::int64_t> held_out;
};
[[nodiscard]] HeldOut hold_out(std::int64_t samples, std::int64_t count, std::uint64_t seed);

}  // namespace moesaic
