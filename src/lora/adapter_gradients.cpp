#include "src/lora/adapter_gradients.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moesaic {
namespace {

std::int64_t elements(std::span<const AdapterPlace> places) {
  std::int64_t count = 0;
  for (const AdapterPlace& place : places) {
    count = std::max({count, place.a.first + place.a.size(), place.b.first + place.b.size()});
  }
  return count;
}

/// Adds `values`, rounded to the nearest unit (halves away from zero). False: something is not
/// finite.
bool add_rounded(std::span<const float> values, std::int64_t* sums) {
  bool finite = true;
  std::uint64_t overflow = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool fits = std::abs(values[i]) < AdapterGradients::kLimit;
    finite &= fits;
    const double units = static_cast<double>(fits ? values[i] : 0.0F) / AdapterGradients::kUnit;
    const auto rounded = static_cast<std::int64_t>(units + std::copysign(0.5, units));
    const auto before = static_cast<std::uint64_t>(sums[i]);
    const std::uint64_t after = before + static_cast<std::uint64_t>(rounded);
    overflow |= (before ^ after) & (static_cast<std::uint64_t>(rounded) ^ after);
    sums[i] = static_cast<std::int64_t>(after);
  }
  return finite && overflow >> 63 == 0;
}

}  // namespace

AdapterGradients::AdapterGradients(std::vector<AdapterPlace> places)
    : places_(std::move(places)),
      sums_(elements(places_)),
      states_(2 * places_.size(), kUntouched) {}

const FactorPlace& AdapterGradients::place(std::int32_t adapter, Factor factor) const {
  const AdapterPlace& both = places_[static_cast<std::size_t>(adapter)];
  return factor == Factor::a ? both.a : both.b;
}

std::size_t AdapterGradients::state_index(std::int32_t adapter, Factor factor) {
  return 2 * static_cast<std::size_t>(adapter) + (factor == Factor::b ? 1 : 0);
}

void AdapterGradients::add(std::int32_t adapter, Factor factor,
                           MatrixView<const float> of_one_sample) {
  const FactorPlace& to = place(adapter, factor);
  require(of_one_sample.rows() == to.rows && of_one_sample.cols() == to.cols, ErrorKind::internal,
          "a gradient of {} x {} for a factor of {} x {}", of_one_sample.rows(),
          of_one_sample.cols(), to.rows, to.cols);
  State& state = states_[state_index(adapter, factor)];
  if (state == kUntouched) state = kTouched;
  for (std::int64_t row = 0; row < to.rows; ++row) {
    std::int64_t* const sums = sums_.data() + to.first + row * to.cols;
    if (!add_rounded(of_one_sample.row(row), sums)) state = kNotFinite;
  }
}

bool AdapterGradients::touched(std::int32_t adapter, Factor factor) const {
  return states_[state_index(adapter, factor)] != kUntouched;
}

std::optional<std::int32_t> AdapterGradients::not_finite() const {
  const auto found = std::ranges::find(states_, kNotFinite);
  if (found == states_.end()) return std::nullopt;
  return static_cast<std::int32_t>((found - states_.begin()) / 2);
}

void AdapterGradients::clear() {
  // Sums over ranks reach factors too that nothing was added to here.
  std::ranges::fill(sums_.span(), std::int64_t{0});
  std::ranges::fill(states_, kUntouched);
}

}  // namespace moesaic
