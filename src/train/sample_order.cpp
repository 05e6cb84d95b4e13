#include "src/train/sample_order.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/counter_random.h"

namespace moesaic {
namespace {

/// What random numbers are for: streams of one seed.
enum class Stream : std::uint64_t { shuffle = 1, hold_out = 2 };

/// 0 .. count - 1 in random order.
std::vector<std::int64_t> shuffled(std::int64_t count, const CounterRandom& random) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> keys;
  keys.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    keys.emplace_back(random.bits(static_cast<std::uint64_t>(i)), i);
  }
  std::ranges::sort(keys);
  std::vector<std::int64_t> order;
  order.reserve(keys.size());
  for (const auto& [key, index] : keys) order.push_back(index);
  return order;
}

CounterRandom stream(std::uint64_t seed, Stream stream) {
  return CounterRandom(seed).at(static_cast<std::uint64_t>(stream));
}

}  // namespace

void SampleOrder::make_epoch(std::int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  if (options_.shuffle) {
    order_ = shuffled(options_.samples,
                      stream(options_.seed, Stream::shuffle).at(static_cast<std::uint64_t>(epoch)));
  } else {
    order_.resize(static_cast<std::size_t>(options_.samples));
    std::iota(order_.begin(), order_.end(), 0);
  }
}

std::vector<std::int64_t> SampleOrder::step(std::int64_t step) {
  make_epoch(step / steps_per_epoch());
  const std::int64_t begin = step % steps_per_epoch() * options_.batch;
  const std::int64_t end = std::min(begin + options_.batch, options_.samples);
  return {order_.begin() + begin, order_.begin() + end};
}

namespace {

/// A share of a number; one that is whole but for rounding is whole.
double product_of(double share, std::int64_t number) {
  // The share and the product are each off by up to half a unit in the last place.
  constexpr double kRelativeError = 2 * std::numeric_limits<double>::epsilon();
  const double product = share * static_cast<double>(number);
  const double whole = std::round(product);
  return std::abs(product - whole) <= kRelativeError * whole ? whole : product;
}

}  // namespace

std::int64_t count_of_share(double share, std::int64_t samples) {
  return static_cast<std::int64_t>(std::floor(product_of(share, samples)));
}

std::int64_t steps_of_epochs(double epochs, std::int64_t steps_per_epoch) {
  return static_cast<std::int64_t>(std::ceil(product_of(epochs, steps_per_epoch)));
}

HeldOut hold_out(std::int64_t samples, std::int64_t count, std::uint64_t seed) {
  const std::vector<std::int64_t> order = shuffled(samples, stream(seed, Stream::hold_out));
  HeldOut split;
  split.held_out.assign(order.begin(), order.begin() + std::min(count, samples));
  split.trained.assign(order.begin() + std::min(count, samples), order.end());
  std::ranges::sort(split.held_out);
  std::ranges::sort(split.trained);
  return split;
}

}  // namespace moesaic
