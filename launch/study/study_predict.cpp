#include "launch/study/study_predict.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/options/shell_word.h"
#include "launch/results/result_table.h"
#include "launch/study/study_models.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

std::string number(double value) {
  return fmt::format("{}", value);
}

std::string terms_json(const StudyFit& fit, const std::vector<TermName>& names,
                       std::size_t points) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const WithInterval rate = fit.rate(i);
    const std::string source = fit.is_measured(i) ? fmt::format("fit to {} points", points)
                               : fit.is_unknown(i)
                                   ? fmt::format("{}, no point has any", kUnknownRate)
                                   : "as usual, no point has any";
    text +=
        (i == 0 ? "" : ",") + JsonWriter()
                                  .field("name", names[i].name)
                                  .field("value", rate.value)
                                  .raw_field("ci95", fmt::format("[{},{}]", rate.low, rate.high))
                                  .field("unit", names[i].unit)
                                  .field("source", fmt::format("{}: {}", source, names[i].meaning))
                                  .text();
  }
  return "[" + text + "]";
}

std::string prediction_json(const Prediction& from) {
  return JsonWriter()
      .field("group", from.group)
      .field("ranks", from.ranks)
      .field("nodes", from.nodes)
      .field("tokens_per_second", from.tokens_per_second.value)
      .field("low", from.tokens_per_second.low)
      .field("high", from.tokens_per_second.high)
      .field("far", from.is_far)
      .raw_field("phases", JsonWriter()
                               .field("compute_s", from.compute_seconds)
                               .field("exchange_s", from.exchange_seconds)
                               .field("steps_s", from.step_seconds)
                               .text())
      .text();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// A study with its fit.
class StudyPredictor {
 public:
  explicit StudyPredictor(const std::vector<StudyRow>& rows)
      : rows_(rows), labels_(group_labels(rows)), models_(rows), fit_(fit_points()) {}

  [[nodiscard]] const StudyFit& fit() const noexcept { return fit_; }
  [[nodiscard]] const std::vector<TermName>& names() const noexcept { return names_; }

  /// Whether so many ranks can do what the group of the point `row` does, and the points tell how
  /// long that takes; if not, `log` is told why.
  [[nodiscard]] bool can_tell(std::size_t row, std::int64_t ranks, const Log& log) {
    const PointRecord& record = rows_[row].record;
    const PointPlan plan = StudyModels::plan(record, ranks);
    if (!models_.can_run(plan, log)) return false;
    const std::vector<double> amounts = models_.terms(plan).amounts(plan, popularity_of(record));
    std::set<std::string> usual;
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      if (amounts[i] <= 0 || fit_.is_measured(i)) continue;
      if (!fit_.is_unknown(i)) {
        usual.insert(names_[i].name);
        continue;
      }
      const std::string text = fmt::format("{} ranks are left out: no point has any {} ({})", ranks,
                                           names_[i].name, names_[i].meaning);
      if (told_.insert(text).second) log.once(LogLevel::warning, "{}", text);
      return false;
    }
    usual_.merge(usual);
    return true;
  }
  /// Terms of what can be told that no point has: their rates are the usual ones.
  [[nodiscard]] const std::set<std::string>& usual() const noexcept { return usual_; }

  /// Of the group of the point `row`, on so many ranks, which can do it.
  [[nodiscard]] Prediction predict(std::size_t row, std::int64_t ranks) {
    const PointRecord& record = rows_[row].record;
    const PointPlan plan = StudyModels::plan(record, ranks);
    const std::vector<double> amounts = models_.terms(plan).amounts(plan, popularity_of(record));
    const WithInterval seconds = fit_.predict(amounts, models_.terms(plan).overlap(plan));
    const double tokens = PointTerms::tokens(plan);
    Prediction result{.group = labels_[row], .ranks = ranks, .nodes = plan.ranks.nodes()};
    result.tokens_per_second = {tokens / seconds.value, tokens / seconds.high,
                                tokens / seconds.low};
    const std::size_t exchange = models_.terms(plan).num_exchange_terms();
    const std::size_t compute = models_.terms(plan).num_computing_terms();
    result.compute_seconds = fit_.part_seconds(amounts, 0, compute);
    result.step_seconds = fit_.part_seconds(amounts, compute + exchange, 1);
    // What of it is not hidden: the same sum without it, rounded alike, is less by that.
    std::vector<double> alone = amounts;
    std::fill_n(alone.begin() + static_cast<std::ptrdiff_t>(compute), exchange, 0.0);
    const double without = fit_.predict(alone, models_.terms(plan).overlap(plan)).value;
    result.exchange_seconds = std::max(0.0, seconds.value - without);
    result.is_far = ranks > 4 * most_ranks(labels_[row]);
    return result;
  }

  /// The points that were measured, one a group.
  [[nodiscard]] std::vector<std::size_t> groups() const {
    return largest_of_groups(rows_, labels_);
  }

 private:
  [[nodiscard]] StudyFit fit_points() {
    std::vector<FitPoint> points;
    UsualRates usual;
    for (const StudyRow& row : rows_) {
      if (!row.record.measurement) continue;
      const Measurement& m = *row.record.measurement;
      const PointPlan plan = StudyModels::plan(row.record, m.ranks);
      const PointTerms terms = models_.terms(plan);
      names_ = terms.names();
      usual = terms.usual();
      points.push_back({.ranks = m.ranks,
                        .amounts = terms.amounts(plan, popularity_of(row.record)),
                        .overlap = terms.overlap(plan),
                        .samples = m.samples});
    }
    return StudyFit(std::move(points), std::move(usual));
  }

  [[nodiscard]] std::int64_t most_ranks(const std::string& label) const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto& m = rows_[i].record.measurement;
      if (m && labels_[i] == label) most = std::max(most, m->ranks);
    }
    return most;
  }

  const std::vector<StudyRow>& rows_;
  std::vector<std::string> labels_;
  StudyModels models_;
  std::vector<TermName> names_;
  StudyFit fit_;
  std::set<std::string> usual_;
  std::set<std::string> told_;  // by can_tell(), of several groups once
};

/// JSON has no infinity: it is written as null.
double number_or_infinity(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? found->as_double() : std::numeric_limits<double>::infinity();
}

Prediction parse_prediction(const Json& json) {
  const Json phases = json.at("phases");
  return {.group = json.at("group").as_string(),
          .ranks = json.at("ranks").as_int(),
          .nodes = json.at("nodes").as_int(),
          .tokens_per_second = {number_or_infinity(json, "tokens_per_second"),
                                number_or_infinity(json, "low"), number_or_infinity(json, "high")},
          .compute_seconds = phases.at("compute_s").as_double(),
          .exchange_seconds = phases.at("exchange_s").as_double(),
          .step_seconds = phases.at("steps_s").as_double(),
          .is_far = json.at("far").as_bool()};
}

std::string model_path(const std::string& out) {
  return (std::filesystem::path(out) / "model.json").string();
}

std::string model_json(const StudyPredictor& study, const std::vector<StudyRow>& rows,
                       const std::vector<Prediction>& predictions) {
  const auto points = static_cast<std::size_t>(std::ranges::count_if(
      rows, [](const StudyRow& row) { return row.record.measurement.has_value(); }));
  std::string list;
  for (const Prediction& prediction : predictions) {
    list += (list.empty() ? "" : ",") + prediction_json(prediction);
  }
  const std::vector<double>& errors = study.fit().leave_one_out();
  const double largest = study.fit().leave_largest_out();
  return JsonWriter()
             .field("points", points_checksum(rows))
             .raw_field("terms", terms_json(study.fit(), study.names(), points))
             .raw_field("leave_one_out", JsonWriter()
                                             .field("median", median(errors))
                                             .field("max", std::ranges::max(errors))
                                             .text())
             .raw_field("leave_largest_out", largest < 0 ? "null" : number(largest))
             .raw_field("predictions", "[" + list + "]")
             .text() +
         "\n";
}

}  // namespace

std::string model_obstacle(const StudyConfig& study, const std::vector<StudyRow>& rows) {
  const std::string path = model_path(study.out);
  if (!file_exists(path)) return "";
  const auto points = Json::read_file(path).find("points");
  if (points && points->as_string() == points_checksum(rows)) return "";
  return fmt::format("{} was fitted to other points: moesaic study predict {} makes it anew", path,
                     shell_word(study.path));
}

std::vector<Prediction> read_predictions(const std::string& out) {
  std::vector<Prediction> predictions;
  if (!file_exists(model_path(out))) return predictions;
  Json::read_file(model_path(out))
      .at("predictions")
      .for_each(
          [&](const std::string&, const Json& p) { predictions.push_back(parse_prediction(p)); });
  return predictions;
}

int run_study_predict(const Command& command) {
  const StudyConfig study = read_study(command.options.study_config);
  std::set<std::int64_t> numbers;
  for (const std::int64_t ranks : command.options.predict_ranks) {
    require(numbers.insert(ranks).second, ErrorKind::usage, "--ranks has {} twice", ranks);
  }
  const std::vector<StudyRow> rows = read_results(study);
  StudyPredictor predictor(rows);
  const Log log(command.options.log_level, 0, 1);
  std::vector<Prediction> predictions;
  for (const std::size_t row : predictor.groups()) {
    for (const std::int64_t ranks : command.options.predict_ranks) {
      if (!predictor.can_tell(row, ranks, log)) continue;
      predictions.push_back(predictor.predict(row, ranks));
    }
  }
  if (!predictor.usual().empty()) {
    log.once(LogLevel::warning, "no point has any {}: predictions take what is usual",
             fmt::join(predictor.usual(), ", "));
  }
  replace_file(model_path(study.out), model_json(predictor, rows, predictions));
  const std::vector<double>& errors = predictor.fit().leave_one_out();
  log.once(LogLevel::info, "{}: each point told by the others within {} % (median), {} % (most)",
           model_path(study.out), short_number(100 * median(errors), 2),
           short_number(100 * std::ranges::max(errors), 2));
  return 0;
}

}  // namespace moesaic
