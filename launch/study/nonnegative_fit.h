#pragma once

#include <vector>

namespace moesaic {

/// What times are made of: amounts of each term for each sample, and what the sample took.
struct FitSamples {
  std::vector<std::vector<double>> amounts;  // [samples][terms], not negative
  std::vector<double> seconds;               // [samples], above 0
};

/// Seconds for one of each term, none negative, for which sum over samples of (told / taken - 1)^2
/// is least: non-negative least squares on relative errors (Lawson and Hanson 1974, chapter 23).
/// Terms that no sample has are 0.
[[nodiscard]] std::vector<double> fit_nonnegative(const FitSamples& samples);

/// What the rates tell of a sample.
[[nodiscard]] double told_seconds(const std::vector<double>& amounts,
                                  const std::vector<double>& rates);

}  // namespace moesaic
