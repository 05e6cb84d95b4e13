#include "launch/study/nonnegative_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <numeric>

namespace moesaic {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Least squares by the columns in `passive` alone; other elements are 0.
VectorXd solve_passive(const MatrixXd& a, const VectorXd& b, const std::vector<Index>& passive) {
  MatrixXd columns(a.rows(), static_cast<Index>(passive.size()));
  for (std::size_t i = 0; i < passive.size(); ++i) {
    columns.col(static_cast<Index>(i)) = a.col(passive[i]);
  }
  const VectorXd part = columns.colPivHouseholderQr().solve(b);
  VectorXd x = VectorXd::Zero(a.cols());
  for (std::size_t i = 0; i < passive.size(); ++i) x[passive[i]] = part[static_cast<Index>(i)];
  return x;
}

/// Goes from `x` towards `wanted` as far as no element becomes negative; those that are 0 then are
/// passive no more. Returns whether `wanted` was reached.
bool step_towards(const VectorXd& wanted, VectorXd& x, std::vector<Index>& passive) {
  double share = 1;
  for (const Index i : passive) {
    if (wanted[i] <= 0) share = std::min(share, x[i] / (x[i] - wanted[i]));
  }
  x += share * (wanted - x);
  std::erase_if(passive, [&](Index i) { return wanted[i] <= 0 && x[i] <= 1e-15; });
  if (share >= 1) return true;
  for (Index i = 0; i < x.size(); ++i) x[i] = std::max(x[i], 0.0);
  return false;
}

VectorXd lawson_hanson(const MatrixXd& a, const VectorXd& b) {
  VectorXd x = VectorXd::Zero(a.cols());
  std::vector<Index> passive;
  for (Index round = 0; round < 3 * a.cols(); ++round) {
    VectorXd gain = a.transpose() * (b - a * x);
    for (const Index i : passive) gain[i] = 0;
    Index best = 0;
    if (gain.size() == 0 || gain.maxCoeff(&best) < 1e-10) break;
    passive.push_back(best);
    while (!passive.empty() && !step_towards(solve_passive(a, b, passive), x, passive)) {
    }
  }
  return x;
}

/// Rows of an equation for each term of which something is usual: a rate is what is usual, times a
/// common factor for computing terms, which is the last unknown.
void add_usual(const UsualRates& usual, Index first_row, MatrixXd& a, VectorXd& b) {
  constexpr double kComputing = 0.01;
  constexpr double kOther = 0.001;
  Index row = first_row;
  for (std::size_t term = 0; term < usual.seconds.size(); ++term) {
    if (usual.seconds[term] == 0) continue;
    const bool is_computing = term < usual.num_computing;
    const double weight = is_computing ? kComputing : kOther;
    a(row, static_cast<Index>(term)) = weight / usual.seconds[term];
    if (is_computing) a(row, a.cols() - 1) = -weight;
    b[row++] = is_computing ? 0 : weight;
  }
}

}  // namespace

std::vector<double> fit_nonnegative(const FitSamples& samples, const UsualRates& usual) {
  const auto rows = static_cast<Index>(samples.amounts.size());
  const auto terms = static_cast<Index>(rows == 0 ? 0 : samples.amounts.front().size());
  const auto num_usual = static_cast<Index>(
      std::ranges::count_if(usual.seconds, [](double seconds) { return seconds > 0; }));
  MatrixXd a = MatrixXd::Zero(rows + num_usual, terms + 1);
  VectorXd b = VectorXd::Ones(rows + num_usual);
  for (Index row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    for (Index term = 0; term < terms; ++term) {
      a(row, term) = samples.amounts[r][static_cast<std::size_t>(term)] / samples.seconds[r];
    }
  }
  add_usual(usual, rows, a, b);
  // Terms are bytes, operations, messages: of sizes that only become comparable by their columns.
  const VectorXd sizes = a.colwise().norm();
  for (Index term = 0; term < a.cols(); ++term) {
    if (sizes[term] > 0) a.col(term) /= sizes[term];
  }
  const VectorXd x = lawson_hanson(a, b);
  std::vector<double> rates(static_cast<std::size_t>(terms));
  for (Index term = 0; term < terms; ++term) {
    if (sizes[term] > 0) rates[static_cast<std::size_t>(term)] = x[term] / sizes[term];
  }
  return rates;
}

double told_seconds(const std::vector<double>& amounts, const std::vector<double>& rates) {
  return std::inner_product(amounts.begin(), amounts.end(), rates.begin(), 0.0);
}

}  // namespace moesaic
