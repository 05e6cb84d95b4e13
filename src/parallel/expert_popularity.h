#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counter_random.h"
#include "src/parallel/expert_placement.h"
#include "src/parallel/expert_record.h"

namespace moesaic {

/// How often tokens choose each expert of each layer: even, by Zipf's law, as a run recorded it, or
/// what the tokens of a text chose.
class ExpertPopularity {
 public:
  /// Every expert as often as the others.
  [[nodiscard]] static ExpertPopularity even();
  /// One expert of a token after the other, without repetition, the n-th most popular as likely as
  /// n^-exponent says. Which they are is another matter in each layer.
  [[nodiscard]] static ExpertPopularity zipf(double exponent);
  /// `rows` [layers][experts]: how many tokens chose each expert, as counted in a run in which each
  /// token chose `topk`. `source` says in messages where that comes from. Throws Error{file} for
  /// layers of different lengths, numbers below zero, and layers without a row.
  [[nodiscard]] static ExpertPopularity recorded(std::vector<std::vector<double>> rows,
                                                 std::int64_t topk, std::string source);
  /// `choices`: of the tokens of a text, `topk` of `experts` each. Throws Error{file} where there
  /// are none.
  [[nodiscard]] static ExpertPopularity chosen(ExpertChoices choices, std::int64_t experts,
                                               std::int64_t topk, std::string source);
  /// "even", "zipf:S", or a file: JSON with "experts_per_token" and "rows" [layers][experts].
  /// Throws Error{usage} for another S than 0 to 10, Error{file} for another text that is no file,
  /// and for what such a file cannot hold.
  [[nodiscard]] static ExpertPopularity from_text(std::string_view text);

  /// Rates [experts] of `layer` (0, 1, ... of those with experts): a token's experts are the
  /// first that exponentially distributed clocks of these rates let ring. Throws Error{file} if
  /// the recorded layers or experts are others.
  [[nodiscard]] std::vector<double> rates(std::int64_t layer, std::int64_t experts) const;
  /// What the tokens of a text chose in `layer`; none: of chosen() alone are they known.
  [[nodiscard]] std::span<const ExpertId> choices(std::int64_t layer) const;
  [[nodiscard]] bool has_choices() const noexcept { return !choices_.empty(); }
  [[nodiscard]] const std::string& source() const noexcept { return source_; }

 private:
  ExpertPopularity(double exponent, std::string source)
      : exponent_(exponent), source_(std::move(source)) {}

  double exponent_ = 0;                     // of Zipf's law; 0: even
  std::vector<std::vector<double>> rates_;  // recorded
  ExpertChoices choices_;                   // chosen
  std::string source_;
};

/// Draws experts for tokens: the smallest of exponentially distributed times, of given rates, are a
/// draw without repetition (Efraimidis and Spirakis 2006).
class ExpertDraw {
 public:
  ExpertDraw(std::vector<double> rates, std::int64_t topk)
      : rates_(std::move(rates)), topk_(topk), times_(rates_.size()) {}

  /// The experts of one token, ascending, valid until the next call.
  [[nodiscard]] std::span<const ExpertId> next(const CounterRandom& random);

 private:
  struct Time {
    double time;
    ExpertId expert;
  };
  std::vector<double> rates_;
  std::int64_t topk_;
  std::vector<Time> times_;
  std::vector<ExpertId> chosen_;
};

}  // namespace moesaic
