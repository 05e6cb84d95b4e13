#include "src/model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moesaic {
namespace {

/// theta^(-2i / dim)
double plain_frequency(double theta, std::int64_t dim, std::int64_t i) {
  return 1.0 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(dim));
}

std::vector<double> plain_frequencies(double theta, std::int64_t dim) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < dim / 2; ++i) result.push_back(plain_frequency(theta, dim, i));
  return result;
}

/// Low frequencies divided by `factor`, high ones kept, a ramp between
/// (`_compute_yarn_parameters`).
std::vector<double> yarn_frequencies(const RopeConfig& config) {
  const std::vector<double> plain = plain_frequencies(config.theta, config.rotary_dim);
  const auto dim = static_cast<double>(config.rotary_dim);
  const auto correction = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(config.original_max_position) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double low = correction(config.beta_fast);
  double high = correction(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // the ramp of a single step
  std::vector<double> result;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.push_back(plain[i] * (1 - ramp) + plain[i] / config.factor * ramp);
  }
  return result;
}

/// Long wavelengths divided by `factor`, short ones kept, smooth between
/// (`_compute_llama3_parameters`).
std::vector<double> llama3_frequencies(const RopeConfig& config) {
  std::vector<double> result = plain_frequencies(config.theta, config.rotary_dim);
  const auto original = static_cast<double>(config.original_max_position);
  const double low_wavelength = original / config.low_freq_factor;
  const double high_wavelength = original / config.high_freq_factor;
  for (double& frequency : result) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > low_wavelength) {
      frequency /= config.factor;
    } else if (wavelength >= high_wavelength) {
      const double smooth = (original / wavelength - config.low_freq_factor) /
                            (config.high_freq_factor - config.low_freq_factor);
      frequency = (1 - smooth) * frequency / config.factor + smooth * frequency;
    }
  }
  return result;
}

/// Each frequency divided by its own factor (`_compute_longrope_parameters`).
std::vector<double> longrope_frequencies(const RopeConfig& config,
                                         const std::vector<double>& factors) {
  std::vector<double> result = plain_frequencies(config.theta, config.rotary_dim);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] /= factors[i];
  return result;
}

/// theta grown with the length (`_compute_dynamic_ntk_parameters`).
double dynamic_theta(const RopeConfig& config, std::int64_t length) {
  const auto original = static_cast<double>(config.original_max_position);
  const double seen = std::max(static_cast<double>(length), original);
  const auto dim = static_cast<double>(config.rotary_dim);
  const double growth = config.factor * seen / original - (config.factor - 1);
  return config.theta * std::pow(growth, dim / (dim - 2));
}

/// f32, as transformers keeps frequencies.
std::vector<float> as_floats(const std::vector<double>& values) {
  std::vector<float> result;
  for (const double value : values) result.push_back(static_cast<float>(value));
  return result;
}

std::vector<double> fixed_frequencies(const RopeConfig& config) {
  switch (config.type) {
    case RopeType::yarn:
      return yarn_frequencies(config);
    case RopeType::llama3:
      return llama3_frequencies(config);
    case RopeType::longrope:
      return longrope_frequencies(config, config.short_factor);
    case RopeType::linear: {
      std::vector<double> result = plain_frequencies(config.theta, config.rotary_dim);
      for (double& frequency : result) frequency /= config.factor;
      return result;
    }
    case RopeType::plain:
    case RopeType::dynamic:
      break;
  }
  return plain_frequencies(config.theta, config.rotary_dim);
}

}  // namespace

Rotary::Rotary(const RopeConfig& config)
    : config_(config), half_(config.rotary_dim / 2), fixed_(as_floats(fixed_frequencies(config))) {
  if (config.type == RopeType::longrope) {
    long_context_ = as_floats(longrope_frequencies(config, config.long_factor));
  }
}

void Rotary::angles(std::int64_t position, std::int64_t length, std::span<float> cosines,
                    std::span<float> sines) const {
  const bool is_long = length > config_.original_max_position;
  const bool grows = config_.type == RopeType::dynamic && is_long;
  const double theta = grows ? dynamic_theta(config_, length) : config_.theta;
  const std::vector<float>& frequencies =
      config_.type == RopeType::longrope && is_long ? long_context_ : fixed_;
  const auto factor = static_cast<float>(config_.attention_factor);
  for (std::int64_t i = 0; i < half_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float frequency =
        grows ? static_cast<float>(plain_frequency(theta, config_.rotary_dim, i)) : frequencies[at];
    // The angle is rounded to f32 as transformers does; sine and cosine are those of that angle.
    const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
    cosines[at] = static_cast<float>(std::cos(angle)) * factor;
    sines[at] = static_cast<float>(std::sin(angle)) * factor;
  }
}

}  // namespace moesaic
