#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launch/study/nonnegative_fit.h"

namespace moesaic {

/// Terms of a point that go on at the same time: the first `num_computing`, and `num_links` from
/// `first_link` on, of messages between nodes. None if num_links is 0.
struct TermOverlap {
  std::size_t num_computing = 0;
  std::size_t first_link = 0;
  std::size_t num_links = 0;
};

/// A measured point as the fit sees it.
struct FitPoint {
  std::int64_t ranks = 1;
  std::vector<double> amounts;  // of each term
  TermOverlap overlap{};
  std::vector<double> samples;  // seconds of each repetition
};

/// A value and its 95 % interval.
struct WithInterval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// Rates of a study: what one of each term takes.
class StudyFit {
 public:
  /// Fits the points' mean times, leaning on what is usual, and again as often as `rounds` to
  /// points and repetitions drawn with replacement (bootstrap, a fixed seed): the spread of the
  /// results is the interval. Throws Error{usage} for fewer than 3 points.
  explicit StudyFit(std::vector<FitPoint> points, UsualRates usual = {}, int rounds = 200);

  /// Whether any point has some of term `i`.
  [[nodiscard]] bool is_measured(std::size_t i) const;
  /// Whether nothing tells its rate: no point has any, and nothing is usual.
  [[nodiscard]] bool is_unknown(std::size_t i) const {
    return !is_measured(i) && rate(i).value <= 0;
  }
  /// Seconds for one of it.
  [[nodiscard]] WithInterval rate(std::size_t i) const;
  /// Seconds of a point with these amounts.
  [[nodiscard]] WithInterval predict(const std::vector<double>& amounts,
                                     const TermOverlap& overlap) const;
  /// Of its terms from `first` on, `count` of them, one after the other.
  [[nodiscard]] double part_seconds(const std::vector<double>& amounts, std::size_t first,
                                    std::size_t count) const;
  /// |told / taken - 1| of each point, told by a fit to the others.
  [[nodiscard]] const std::vector<double>& leave_one_out() const noexcept { return left_out_; }
  /// The largest such error of the points with the most ranks, told by those with fewer; nothing
  /// (negative) if all have as many.
  [[nodiscard]] double leave_largest_out() const noexcept { return largest_out_; }

 private:
  std::vector<FitPoint> points_;
  UsualRates usual_;
  std::vector<double> rates_;
  std::vector<std::vector<double>> drawn_;  // rates of each round
  std::vector<double> left_out_;
  double largest_out_ = -1;
};

}  // namespace moesaic
