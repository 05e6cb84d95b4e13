#include "src/lora/adapter_gradients.h"

#include <algorithm>
#include <bit>
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

/// Sums that one task clears.
constexpr std::int64_t kCleared = std::int64_t{1} << 18;

}  // namespace

AdapterGradients::AdapterGradients(std::vector<AdapterPlace> places, const VectorKernels& vector)
    : places_(std::move(places)),
      kernels_(&vector.gradients),
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
                           MatrixView<const float> of_one_sample, std::int64_t first_row) {
  const FactorPlace& to = place(adapter, factor);
  const std::int64_t rows = of_one_sample.rows();
  require(first_row + rows <= to.rows && of_one_sample.cols() == to.cols, ErrorKind::internal,
          "a gradient of {} x {} for a factor of {} x {} from row {} on", rows,
          of_one_sample.cols(), to.rows, to.cols, first_row);
  State& state = states_[state_index(adapter, factor)];
  if (state == kUntouched) state = kTouched;
  const FixedPoint form{.per_one = 1 / unit_, .limit = kLimit * static_cast<float>(unit_ / kUnit)};
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t* const sums = sums_.data() + to.first + (first_row + row) * to.cols;
    const std::span<const float> values = of_one_sample.row(row);
    if (!kernels_->add_fixed(form, values.data(), to.cols, sums)) state = kNotFinite;
  }
}

bool AdapterGradients::touched(std::int32_t adapter, Factor factor) const {
  return states_[state_index(adapter, factor)] != kUntouched;
}

bool AdapterGradients::is_finite(std::int32_t adapter) const {
  const auto states = std::span(states_).subspan(static_cast<std::size_t>(adapter) * 2, 2);
  return std::ranges::find(states, kNotFinite) == states.end();
}

double AdapterGradients::unit_of(std::int64_t trained_tokens) noexcept {
  constexpr int kFewTokens = 6;  // bits: up to 64
  const auto before = static_cast<std::uint64_t>(std::max<std::int64_t>(trained_tokens, 1) - 1);
  const auto bits = static_cast<int>(std::bit_width(before));
  return std::ldexp(kUnit, std::max(0, bits - kFewTokens));
}

void AdapterGradients::clear(ThreadPool& pool, double unit) {
  unit_ = unit;
  // Sums over ranks reach factors too that nothing was added to here.
  pool.for_each_piece(sums_.size(), kCleared, [&](std::int64_t first, std::int64_t count) {
    std::fill_n(sums_.data() + first, count, std::int64_t{0});
  });
  std::ranges::fill(states_, kUntouched);
}

bool AdapterGradients::any_beyond(const FactorPlace& factor, std::int64_t limit) const {
  return kernels_->any_beyond(sums_.data() + factor.first, factor.size(), limit);
}

double AdapterGradients::sum_of_squares(const FactorPlace& factor) const {
  return kernels_->sum_of_squares(sums_.data() + factor.first, factor.size());
}

}  // namespace moesaic
