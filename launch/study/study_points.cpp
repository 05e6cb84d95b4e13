#include "launch/study/study_points.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "launch/bench/model_feed.h"
#include "launch/input/token_prompts.h"
#include "launch/job/gpu_road.h"
#include "launch/job/model_checksum.h"
#include "launch/job/placement_choice.h"
#include "launch/job/program_version.h"
#include "launch/options/choices.h"
#include "launch/options/option_table.h"
#include "launch/sft/sft_adapters.h"
#include "launch/shapes/job_options.h"
#include "launch/shapes/shape_point.h"
#include "src/lora/adapter_files.h"
#include "src/model/model_adapters.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"
#include "src/model/transformer.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {
namespace {

using Choice = std::vector<std::size_t>;  // of each axis, which value

/// The next combination, the last axis fastest; false after the last.
bool advance(Choice& choice, const std::vector<StudyAxis>& axes) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (++choice[i] < axes[i].values.size()) return true;
    choice[i] = 0;
  }
  return false;
}

/// Why values do not go together: the words of an Error{usage}; empty if there is none. What fails
/// otherwise is no matter of a point.
std::string obstacle_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();
  }
  return "";
}

/// What points have of models and texts, each read once.
class StudyFiles {
 public:
  const std::string& model_sum(const std::string& directory) {
    return at(sums_, "model " + directory, [&] { return model_checksum(directory); });
  }
  const std::string& text_sum(const std::string& path) {
    return at(sums_, "text " + path, [&] { return file_checksum(path); });
  }
  const ModelConfig& config(const std::string& directory) {
    return at(configs_, directory, [&] { return read_model_config(directory); });
  }
  /// Throws what the ranks of a point would throw for its model, its text and its adapters.
  void check(const Command& command) {
    constexpr std::array<std::string_view, 15> kDeciding = {
        "job",          "model",       "precision",         "expert-format",
        "dense-format", "head-format", "nvfp4-activations", "activation-scales",
        "text",         "lora",        "lora-rank",         "lora-alpha",
        "rslora",       "mmap",        "lora-targets"};
    const Options& options = command.options;
    std::string key;
    for (const std::string_view name : kDeciding) {
      key += value_text(*find_option(name, Verb::study_point), options) + "\n";
    }
    const auto [known, is_new] = obstacles_.try_emplace(key);
    if (is_new) known->second = obstacle_of([&] { try_model(command); });
    require(known->second.empty(), ErrorKind::usage, "{}", known->second);
  }

 private:
  void try_model(const Command& command) {
    const Options& options = command.options;
    const OpenModel model = open(options);
    const bool has_scales = options.activation_scales == ActivationScales::checkpoint;
    const ModelPlacement placement = PlacementChoice(Options{}.placement).place(model.config, 1);
    const LoadOptions load{.precision = options.precision,
                           .layouts = model.layouts,
                           .stored = {.map = options.mmap},
                           .input_scales = has_scales ? InputScales::largest : InputScales::none,
                           .placement = &placement,
                           .progress = {}};
    (void)ModelLoader(model.files, model.config, load);
    if (options.job == StudyJob::sft) {
      (void)choose_adapters(command, model, adapter_sites(model.files.names(model.config)));
    }
    const std::optional<std::string> text = text_file(options);
    if (text && texts_.insert(options.model + "\n" + *text).second) {
      (void)encode_file(model, *text);
    }
  }

  /// An adapter that is there and does not fit the model goes with others of the study.
  static OpenModel open(Options options) {
    const auto lora = std::exchange(options.lora, std::nullopt);
    OpenModel model = open_model(options);
    if (!lora) return model;
    const bool is_there = file_exists(fmt::format("{}/{}", *lora, kAdapterConfigFile));
    try {
      model.adapter = AdapterFiles::open(*lora, adapter_sites(model.files.names(model.config)));
    } catch (const Error& error) {
      throw Error(is_there ? ErrorKind::usage : error.kind(), error.what());
    }
    return model;
  }

  template <typename Value, typename Make>
  static const Value& at(std::map<std::string, Value>& known, const std::string& key,
                         const Make& make) {
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, make()).first->second;
  }
  std::map<std::string, std::string> sums_;
  std::map<std::string, ModelConfig> configs_;
  std::map<std::string, std::string> obstacles_;  // by what decides whether points can run
  std::set<std::string> texts_;                   // and models that can take them
};

/// Makes the points one by one.
class PointMaker {
 public:
  PointMaker(const StudyConfig& study, const Environment& environment)
      : study_(study), environment_(environment) {
    for (const StudyAxis& axis : study.axes) {
      if (axis.name != "ranks") continue;
      for (const std::string& value : axis.values)
        most_ranks_ = std::max(most_ranks_, std::stol(value));
    }
  }

  StudyPoint make(const Choice& choice) {
    StudyPoint point{.number = ++made_};
    std::vector<std::string> differing;
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const StudyAxis& axis = study_.axes[i];
      const std::string& value = axis.values[choice[i]];
      take(axis, value, point);
      if (axis.values.size() > 1) differing.push_back(fmt::format("{} {}", axis.name, value));
    }
    point.label = fmt::format("{}", fmt::join(differing, ", "));
    point.command = understand(point.words);
    point.obstacle = obstacle_of([&] { finish(point); });
    return point;
  }

  /// Looks at what the point runs.
  void identify(StudyPoint& point) {
    placement_sum_ = 0;
    if (point.obstacle.empty()) {
      check_lines(point.command.options.job);
      point.obstacle = obstacle_of([&] { look_at(point); });
    }
    point.id = checksum_text(checksum(identity(point)));
  }

 private:
  void take(const StudyAxis& axis, const std::string& value, StudyPoint& point) const {
    if (axis.name == "ranks") {
      point.ranks = std::stol(value);
    } else if (axis.name == "link") {
      point.link = value;
    } else {
      point.words.push_back(fmt::format("{}={}", axis.name, value));
      check(axis, point);
    }
  }

  /// Errors of a value name its line.
  void check(const StudyAxis& axis, const StudyPoint& point) const {
    try {
      require_experts_for_nccl(parse_command(point_arguments({point.words.back()}), {}));
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{} line {}: {}", study_.path, axis.line, error.what()));
    }
  }

  /// Errors of several values together name the file.
  void check_together(const std::function<void()>& check) const {
    try {
      check();
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", study_.path, error.what()));
    }
  }

  void look_at(StudyPoint& point) {
    const Options& options = point.command.options;
    check_ranks(point);
    check_exchange(options);
    if (options.shape) return;
    check_together([&] { files_.check(point.command); });
    point.note = sequence_note(options, files_.config(options.model));
  }

  /// How rows are to travel. Of a file that places experts what it says counts.
  void check_exchange(const Options& options) {
    check_together([&] {
      placement_sum_ = PlacementChoice(options.placement).fingerprint();
      if (!options.shape) check_moe_options({.defer = options.defer}, files_.config(options.model));
    });
  }

  /// Ranks that can never run name their line.
  void check_ranks(const StudyPoint& point) {
    const Options& options = point.command.options;
    std::int64_t experts = 0;
    check_together([&] {
      experts = options.shape ? parse_layer_shape(*options.shape, options.shape_experts).experts
                              : files_.config(options.model).num_experts;
    });
    try {
      require_experts(experts, static_cast<int>(point.ranks),
                      static_cast<int>(options.expert_replicas));
    } catch (const Error& error) {
      const auto axis = std::ranges::find(study_.axes, "ranks", &StudyAxis::name);
      throw Error(error.kind(), fmt::format("{} line {}: ranks = {}: {}", study_.path, axis->line,
                                            point.ranks, error.what()));
    }
  }

  static std::vector<std::string> point_arguments(const std::vector<std::string>& words) {
    std::vector<std::string> arguments = {"study", "point"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return arguments;
  }
  [[nodiscard]] Command understand(const std::vector<std::string>& words) const {
    return parse_command(point_arguments(words), environment_);
  }

  /// In the place of what the file says.
  static void set(StudyPoint& point, std::string_view name, std::int64_t value) {
    const std::string word = fmt::format("{}=", name);
    std::erase_if(point.words, [&](const std::string& w) { return w.starts_with(word); });
    point.words.push_back(fmt::format("{}{}", word, value));
  }

  /// Values that make no difference to the point's job would have it measured once for each.
  void check_lines(StudyJob job) const {
    for (const StudyAxis& axis : study_.axes) {
      require(axis.values.size() == 1 || job_takes(job, axis.name), ErrorKind::usage,
              "{} line {}: {} = {}: points of job = {} are the same with each of them", study_.path,
              axis.line, axis.name, fmt::join(axis.values, ","), choice_name(job));
    }
  }

  void finish(StudyPoint& point) {
    const Options& options = point.command.options;
    check_together([&] { require_point(point.command); });
    const bool is_told = source_of(point.command, "sequences") != OptionSource::preset;
    const bool is_strong = study_.kind == StudyKind::strong;
    if (!is_strong || !is_told) {
      set(point, "sequences", is_strong ? most_ranks_ : options.sequences * point.ranks);
    }
    if (study_.kind == StudyKind::experts) {
      set(point, "experts",
          parse_layer_shape(*options.shape, options.shape_experts).experts * point.ranks);
    }
    point.command = understand(point.words);
    check_together([&] { require_point(point.command); });  // with the experts of all its ranks
  }

  /// All that the result of a point follows from.
  [[nodiscard]] std::string identity(const StudyPoint& point) {
    constexpr std::array<std::string_view, 3> kFiles = {"model", "text", "lora"};
    const Options& options = point.command.options;
    const std::string& routing = options.plan_routing;
    const bool reads_routing = options.shape && routing != "even" && !routing.starts_with("zipf:");
    const std::optional<std::string> text = text_file(options);
    JsonWriter out;
    if (!point.obstacle.empty()) out.field("impossible", true);
    out.field("version", program_version().text())
        .field("kind", choice_name(study_.kind))
        .field("launcher", study_.launcher)
        .field("link", point.link)
        .field("ranks", point.ranks)
        .field("model", options.shape ? "" : files_.model_sum(options.model))
        .field("routing_rows", reads_routing ? files_.text_sum(routing) : "")
        .field("placement_rows", checksum_text(placement_sum_))
        .field("text", text ? files_.text_sum(*text) : options.bench_text.value_or(""))
        .field("lora", options.lora ? files_.model_sum(*options.lora) : "");
    for (const OptionRow& row : option_table()) {
      const bool counts = takes(Verb::study_point, row) && row.group != "Program" &&
                          !changes_no_point(row.name) &&
                          std::ranges::find(kFiles, row.name) == kFiles.end();
      if (counts) out.field(row.name, value_text(row, options));
    }
    return out.text();
  }

  const StudyConfig& study_;
  const Environment& environment_;
  StudyFiles files_;
  std::int64_t most_ranks_ = 1;
  std::uint64_t placement_sum_ = 0;  // of the last point
  std::int64_t made_ = 0;
};

}  // namespace

std::vector<StudyPoint> planned_points(const StudyConfig& study, const Environment& environment) {
  std::vector<StudyPoint> points;
  PointMaker maker(study, environment);
  Choice choice(study.axes.size(), 0);
  do {
    points.push_back(maker.make(choice));
  } while (advance(choice, study.axes));
  return points;
}

std::vector<StudyPoint> study_points(const StudyConfig& study, const Environment& environment) {
  std::vector<StudyPoint> points = planned_points(study, environment);
  PointMaker maker(study, environment);
  std::map<std::string, std::string> labels;  // by id
  for (StudyPoint& point : points) {
    maker.identify(point);
    const auto [same, is_new] = labels.try_emplace(point.id, point.label);
    require(is_new, ErrorKind::usage, "{}: the points \"{}\" and \"{}\" are the same", study.path,
            same->second, point.label);
  }
  return points;
}

}  // namespace moesaic
