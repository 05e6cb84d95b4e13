#include "launch/study/study_predict.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/bench/result_table.h"
#include "launch/options/option_table.h"
#include "launch/plan/cost_model.h"
#include "launch/study/point_terms.h"
#include "launch/study/shape_point.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

/// The options of `study point` that a point had.
Options options_of(const PointRecord& record) {
  std::vector<std::string> words = {"study", "point"};
  for (const auto& [name, value] : record.options) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", name, value));
  }
  return parse_command(words, {}).options;
}

/// Points, and what they are made of.
class StudyModels {
 public:
  explicit StudyModels(const std::vector<StudyRow>& rows) {
    std::set<Format> formats;
    for (const StudyRow& row : rows) {
      if (!row.record.measurement) continue;
      const PointModel& model = model_of(options_of(row.record));
      for (const Format format : formats_of(model.cost)) formats.insert(format);
      choice_.trains = choice_.trains || model.adapters;
    }
    choice_.formats.assign(formats.begin(), formats.end());
  }

  [[nodiscard]] PointTerms terms(const PointPlan& plan) {
    return {model_of(plan.options), choice_};
  }
  /// Experts that ranks share.
  [[nodiscard]] std::int64_t experts(const PointPlan& plan) {
    return model_of(plan.options).cost.num_experts;
  }

  /// Amounts of a measured point as it was, or on other `ranks`.
  [[nodiscard]] PointPlan plan(const PointRecord& record, std::int64_t ranks) const {
    const Measurement& m = *record.measurement;
    PointPlan plan{.ranks = {}, .core_share = 1, .options = options_of(record)};
    const std::int64_t on_node = std::max<std::int64_t>(1, m.ranks / m.nodes);
    plan.ranks = {.ranks = static_cast<int>(ranks),
                  .ranks_per_node = static_cast<int>(m.nodes > 1 ? on_node : ranks),
                  .threads = static_cast<int>(std::max<std::int64_t>(1, m.threads / m.ranks)),
                  .expert_replicas = static_cast<int>(m.replicas)};
    if (ranks == m.ranks) {
      plan.core_share = static_cast<double>(m.threads) / static_cast<double>(m.cores);
    } else if (record.kind != "strong") {
      plan.options.sequences = plan.options.sequences / m.ranks * ranks;
      if (record.kind == "experts") {
        plan.options.shape_experts = plan.options.shape_experts / m.ranks * ranks;
      }
    }
    return plan;
  }

 private:
  const PointModel& model_of(const Options& options) {
    std::string key;
    for (const char* name :
         {"job", "lora", "lora-rank", "lora-targets", "model", "shape", "experts", "precision",
          "expert-format", "dense-format", "head-format"}) {
      key += value_text(*find_option(name, Verb::study_point), options) + "\n";
    }
    const auto found = models_.find(key);
    return found != models_.end() ? found->second
                                  : models_.emplace(key, make_model(options)).first->second;
  }

  static PointModel make_model(const Options& options) {
    if (options.shape) {
      const ShapePoint point = shape_point(options, 1);
      return {std::nullopt, std::nullopt,
              make_cost_model(point.shape, point.layout, options.precision)};
    }
    const OpenModel model = open_model(options);
    LoadOptions load;
    load.precision = options.precision;
    load.layouts = model.layouts;
    std::optional<AdapterNumbers> adapters;
    if (options.job == StudyJob::sft) {
      adapters = adapter_numbers(trained_adapters(options, model), model.config);
    }
    return {model.config, adapters, make_cost_model(model, load, {})};
  }

  std::map<std::string, PointModel> models_;
  TermChoice choice_;
};

std::string number(double value) {
  return fmt::format("{}", value);
}

std::string terms_json(const StudyFit& fit, const std::vector<TermName>& names,
                       std::size_t points) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const WithInterval rate = fit.rate(i);
    text += (i == 0 ? "" : ",") +
            JsonWriter()
                .field("name", names[i].name)
                .field("value", rate.value)
                .raw_field("ci95", fmt::format("[{},{}]", rate.low, rate.high))
                .field("unit", names[i].unit)
                .field("source", fmt::format("fit to {} points: {}", points, names[i].meaning))
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

/// Seconds of the terms from `first` on, `count` of them.
double seconds_of(const StudyFit& fit, const std::vector<double>& amounts, std::size_t first,
                  std::size_t count) {
  double seconds = 0;
  for (std::size_t i = first; i < first + count; ++i) seconds += amounts[i] * fit.rate(i).value;
  return seconds;
}

/// The experts' popularity in a point: as its ranks counted, or even if it has no count.
ExpertPopularity popularity_of(const PointRecord& record) {
  const Measurement& m = *record.measurement;
  std::vector<std::vector<double>> rows;
  for (const std::vector<std::int64_t>& layer : m.expert_rows) {
    rows.emplace_back(layer.begin(), layer.end());
  }
  if (record.kind == "experts") {
    return ExpertPopularity::from_text(record.options.at("routing"));  // of any number of them
  }
  if (rows.empty()) return ExpertPopularity::even();
  return ExpertPopularity::recorded(std::move(rows), m.experts_per_token, "point " + record.id);
}

/// A study with its fit.
class StudyPredictor {
 public:
  explicit StudyPredictor(const std::vector<StudyRow>& rows)
      : rows_(rows), labels_(group_labels(rows)), models_(rows), fit_(points()) {}

  [[nodiscard]] const StudyFit& fit() const noexcept { return fit_; }
  [[nodiscard]] const std::vector<TermName>& names() const noexcept { return names_; }

  /// Of the group of the point `row`, on so many ranks; nothing where they cannot share the
  /// experts.
  [[nodiscard]] std::optional<Prediction> predict(std::size_t row, std::int64_t ranks) {
    const PointRecord& record = rows_[row].record;
    const PointPlan plan = models_.plan(record, ranks);
    if (plan.ranks.sharers() > models_.experts(plan)) return std::nullopt;
    const std::vector<double> amounts = models_.terms(plan).amounts(plan, popularity_of(record));
    const WithInterval seconds = fit_.predict(amounts);
    const double tokens = PointTerms::tokens(plan);
    Prediction result{.group = labels_[row], .ranks = ranks, .nodes = plan.ranks.nodes()};
    result.tokens_per_second = {tokens / seconds.value, tokens / seconds.high,
                                tokens / seconds.low};
    const std::size_t exchange = models_.terms(plan).num_exchange_terms();
    const std::size_t compute = names_.size() - exchange - 1;
    result.compute_seconds = seconds_of(fit_, amounts, 0, compute);
    result.exchange_seconds = seconds_of(fit_, amounts, compute, exchange);
    result.step_seconds = seconds_of(fit_, amounts, compute + exchange, 1);
    result.is_far = ranks > 4 * most_ranks(labels_[row]);
    return result;
  }

  /// The points that were measured, one a group.
  [[nodiscard]] std::vector<std::size_t> groups() const {
    std::set<std::string> seen;
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].record.measurement && seen.insert(labels_[i]).second) result.push_back(i);
    }
    return result;
  }

 private:
  [[nodiscard]] std::vector<FitPoint> points() {
    std::vector<FitPoint> points;
    for (const StudyRow& row : rows_) {
      if (!row.record.measurement) continue;
      const Measurement& m = *row.record.measurement;
      const PointPlan plan = models_.plan(row.record, m.ranks);
      const PointTerms terms = models_.terms(plan);
      names_ = terms.names();
      points.push_back({.ranks = m.ranks,
                        .amounts = terms.amounts(plan, popularity_of(row.record)),
                        .samples = m.samples});
    }
    return points;
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
};

Prediction parse_prediction(const Json& json) {
  const Json phases = json.at("phases");
  return {.group = json.at("group").as_string(),
          .ranks = json.at("ranks").as_int(),
          .nodes = json.at("nodes").as_int(),
          .tokens_per_second = {json.at("tokens_per_second").as_double(),
                                json.at("low").as_double(), json.at("high").as_double()},
          .compute_seconds = phases.at("compute_s").as_double(),
          .exchange_seconds = phases.at("exchange_s").as_double(),
          .step_seconds = phases.at("steps_s").as_double(),
          .is_far = json.at("far").as_bool()};
}

std::string model_path(const std::string& out) {
  return (std::filesystem::path(out) / "model.json").string();
}

std::string model_json(const StudyPredictor& study, std::size_t points,
                       const std::vector<Prediction>& predictions) {
  std::string list;
  for (const Prediction& prediction : predictions) {
    list += (list.empty() ? "" : ",") + prediction_json(prediction);
  }
  const std::vector<double>& errors = study.fit().leave_one_out();
  const double largest = study.fit().leave_largest_out();
  return JsonWriter()
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
  const std::vector<StudyRow> rows = read_results(study);
  StudyPredictor predictor(rows);
  const Log log(command.options.log_level, 0, 1);
  std::vector<Prediction> predictions;
  for (const std::size_t row : predictor.groups()) {
    for (const std::int64_t ranks : command.options.predict_ranks) {
      const auto prediction = predictor.predict(row, ranks);
      if (prediction) {
        predictions.push_back(*prediction);
      } else {
        log.once(LogLevel::warning, "{} ranks cannot share the experts: left out", ranks);
      }
    }
  }
  const auto measured = std::ranges::count_if(
      rows, [](const StudyRow& row) { return row.record.measurement.has_value(); });
  replace_file(model_path(study.out),
               model_json(predictor, static_cast<std::size_t>(measured), predictions));
  const std::vector<double>& errors = predictor.fit().leave_one_out();
  log.once(LogLevel::info, "{}: each point told by the others within {} % (median), {} % (most)",
           model_path(study.out), short_number(100 * median(errors), 2),
           short_number(100 * std::ranges::max(errors), 2));
  return 0;
}

}  // namespace moesaic
