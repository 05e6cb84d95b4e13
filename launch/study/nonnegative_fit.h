#pragma once

#include <cstddef>
#include <vector>

namespace moesaic {

/// What times are made of: amounts of each term for each sample, and what the sample took.
struct FitSamples {
  std::vector<std::vector<double>> amounts;  // [samples][terms], not negative
  std::vector<double> seconds;               // [samples], above 0
};

/// What one of each term takes where nothing is out of the ordinary. It decides where samples
/// hardly tell: between terms that grow together in all of them, say. The first `num_computing`
/// terms are compared with each other alone, as cores differ in speed; the rest as they are.
struct UsualRates {
  std::vector<double> seconds;  // [terms]; 0: nothing is usual; empty: of no term
  std::size_t num_computing = 0;
};

/// Seconds for one of each term, none negative, for which sum over samples of (told / taken - 1)^2
/// is least: non-negative least squares on relative errors (Lawson and Hanson 1974, chapter 23).
/// A computing term that is, against the others, twice as slow as usual weighs as much as an error
/// of 1 %; any other term that is a hundred times as slow, as one of 10 %. Terms that no sample has
/// are 0 where nothing is usual, and computing terms where no sample has any of these.
[[nodiscard]] std::vector<double> fit_nonnegative(const FitSamples& samples,
                                                  const UsualRates& usual = {});

/// What the rates tell of a sample.
[[nodiscard]] double told_seconds(const std::vector<double>& amounts,
                                  const std::vector<double>& rates);

}  // namespace moesaic
