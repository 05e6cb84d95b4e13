#include "src/parallel/expert_popularity.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/small_file.h"
#include "src/parallel/expert_record.h"

namespace moesaic {
namespace {

constexpr std::uint64_t kOrderSeed = 5;
/// An expert that every token chose still has a clock that may ring later than others.
constexpr double kMostChosen = 0.999;
/// One that no token chose may be chosen some day.
constexpr double kLeastRate = 1e-9;

/// Experts by falling popularity, in another order for each layer.
std::vector<std::size_t> shuffled(std::int64_t experts, std::int64_t layer) {
  std::vector<std::size_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), std::size_t{0});
  const CounterRandom random = CounterRandom(kOrderSeed).at(static_cast<std::uint64_t>(layer));
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.bits(i) % i]);
  }
  return order;
}

/// Rates of clocks that ring within a unit of time as often as a token of `topk` choices chose the
/// experts: 1 - exp(-rate). `where` names the layer.
std::vector<double> rates_of(const std::vector<double>& rows, std::int64_t topk,
                             const std::string& where) {
  const double sum = std::reduce(rows.begin(), rows.end());
  const auto wrong = std::ranges::find_if(rows, [](double count) { return !(count >= 0); });
  require(wrong == rows.end(), ErrorKind::file, "{}, expert {}: {} is no number of rows", where,
          wrong - rows.begin(), wrong == rows.end() ? 0 : *wrong);
  require(sum > 0 && std::isfinite(sum), ErrorKind::file,
          "{}: the rows of its experts add up to {}", where, sum);
  std::vector<double> rates;
  for (const double count : rows) {
    const double chosen = std::min(kMostChosen, static_cast<double>(topk) * count / sum);
    rates.push_back(std::max(kLeastRate, -std::log1p(-chosen)));
  }
  return rates;
}

ExpertPopularity read_popularity(const std::string& path) {
  ExpertRecord record = read_expert_record(path);
  return ExpertPopularity::recorded(std::move(record.rows), record.experts_per_token, path);
}

}  // namespace

ExpertPopularity ExpertPopularity::even() {
  return {0, "every expert as often as the others"};
}

ExpertPopularity ExpertPopularity::zipf(double exponent) {
  return {exponent, fmt::format("Zipf's law with exponent {}", exponent)};
}

ExpertPopularity ExpertPopularity::recorded(std::vector<std::vector<double>> rows,
                                            std::int64_t topk, std::string source) {
  ExpertPopularity result(0, std::move(source));
  require(!rows.empty(), ErrorKind::file, "{}: there are no layers", result.source_);
  for (const std::vector<double>& layer : rows) {
    require(!layer.empty() && layer.size() == rows.front().size(), ErrorKind::file,
            "{}: a layer has {} experts, the first has {}", result.source_, layer.size(),
            rows.front().size());
    require(topk >= 1 && topk <= std::ssize(layer), ErrorKind::file,
            "{}: experts_per_token is {}, of {} experts", result.source_, topk, layer.size());
    const std::string where = fmt::format("{}: layer {}", result.source_, result.rates_.size());
    result.rates_.push_back(rates_of(layer, topk, where));
  }
  return result;
}

ExpertPopularity ExpertPopularity::chosen(ExpertChoices choices, std::int64_t experts,
                                          std::int64_t topk, std::string source) {
  std::vector<std::vector<double>> rows;
  for (const std::vector<std::int64_t>& layer : count_rows(choices, experts)) {
    rows.emplace_back(layer.begin(), layer.end());
  }
  ExpertPopularity result = recorded(std::move(rows), topk, std::move(source));
  result.choices_ = std::move(choices);
  return result;
}

ExpertPopularity ExpertPopularity::from_text(std::string_view text) {
  constexpr std::string_view kZipf = "zipf:";
  if (text == "even") return even();
  if (!text.starts_with(kZipf)) {
    require(
        file_exists(std::string(text)), ErrorKind::file,
        "routing \"{}\" is neither even nor zipf:S, such as zipf:0.5, and there is no such file",
        text);
    return read_popularity(std::string(text));
  }
  const std::string_view number = text.substr(kZipf.size());
  double exponent = -1;
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, exponent);
  require(error == std::errc() && stop == end && exponent >= 0 && exponent <= 10, ErrorKind::usage,
          "routing \"{}\" is not zipf:S with S from 0 to 10, such as zipf:0.5", text);
  return zipf(exponent);
}

std::vector<double> ExpertPopularity::rates(std::int64_t layer, std::int64_t experts) const {
  if (rates_.empty()) {
    std::vector<double> rates(static_cast<std::size_t>(experts));
    double place = 0;
    for (const std::size_t expert : shuffled(experts, layer)) {
      rates[expert] = std::pow(++place, -exponent_);
    }
    return rates;
  }
  require(layer < std::ssize(rates_) && experts == std::ssize(rates_.front()), ErrorKind::file,
          "{}: recorded of {} layers with {} experts; the model has {} experts and a layer {}",
          source_, rates_.size(), rates_.front().size(), experts, layer);
  return rates_[static_cast<std::size_t>(layer)];
}

std::span<const ExpertId> ExpertPopularity::choices(std::int64_t layer) const {
  if (!has_choices()) return {};
  return choices_.at(static_cast<std::size_t>(layer));
}

std::span<const ExpertId> ExpertDraw::next(const CounterRandom& random) {
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    times_[i] = {-std::log(1 - random.unit(i)) / rates_[i], ExpertId{static_cast<std::int32_t>(i)}};
  }
  const auto end = times_.begin() + static_cast<std::ptrdiff_t>(topk_);
  std::ranges::nth_element(times_, end, {}, &Time::time);
  chosen_.clear();
  for (auto time = times_.begin(); time != end; ++time) chosen_.push_back(time->expert);
  std::ranges::sort(chosen_);
  return chosen_;
}

}  // namespace moesaic
