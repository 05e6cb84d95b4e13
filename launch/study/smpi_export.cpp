#include "launch/study/smpi_export.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/options/shell_word.h"
#include "launch/study/smpi_trace.h"
#include "launch/study/study_models.h"
#include "launch/study/study_predict.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// Rates of terms by their names, as study predict fitted them.
struct Rates {
  std::map<std::string, double> seconds;
  std::set<std::string> unknown;  // of these nothing tells them
};

Rates read_rates(const StudyConfig& study, const std::vector<StudyRow>& rows) {
  const std::string path = (fs::path(study.out) / "model.json").string();
  require(file_exists(path), ErrorKind::usage, "{} is not there: moesaic study predict {} makes it",
          path, shell_word(study.path));
  const std::string obstacle = model_obstacle(study, rows);
  require(obstacle.empty(), ErrorKind::usage, "{}", obstacle);
  Rates rates;
  Json::read_file(path).at("terms").for_each([&](const std::string&, const Json& term) {
    const std::string name = term.at("name").as_string();
    rates.seconds[name] = term.at("value").as_double();
    if (term.at("source").as_string().starts_with(kUnknownRate)) rates.unknown.insert(name);
  });
  return rates;
}

double rate(const Rates& rates, const std::string& name) {
  const auto found = rates.seconds.find(name);
  require(found != rates.seconds.end(), ErrorKind::usage,
          "model.json has no {}: moesaic study predict writes it for the points that are there now",
          name);
  return found->second;
}

/// `node` and `link`: what their terms begin with.
SmpiRates smpi_rates(const Rates& rates, const std::string& node, const std::string& link) {
  return {.near_message = rate(rates, node + ".messages"),
          .near_byte = rate(rates, node + ".bytes"),
          .far_message = rate(rates, link + ".messages"),
          .far_byte = rate(rates, link + ".bytes")};
}

/// Writes the folders of a study.
class SmpiExport {
 public:
  SmpiExport(const Command& command, const StudyConfig& study, const std::vector<StudyRow>& rows)
      : log_(command.options.log_level, 0, 1),
        out_(fs::path(study.out) / "smpi"),
        rows_(rows),
        models_(rows),
        rates_(read_rates(study, rows)) {}

  /// Returns how many there are.
  int write(const std::vector<std::int64_t>& numbers) {
    int written = 0;
    int group = 0;
    for (const std::size_t row : largest_of_groups(rows_, group_labels(rows_))) {
      ++group;
      const PointRecord& record = rows_[row].record;
      if (record.job == "sft") {
        log_.once(LogLevel::warning, "a step of fine-tuning has no trace: left out");
        continue;
      }
      for (const std::int64_t ranks : numbers) {
        written += write(record, fmt::format("{}-{}", group, ranks), ranks) ? 1 : 0;
      }
    }
    return written;
  }

 private:
  /// Whether the rates of all that it takes are known; if not, the log is told which is not.
  [[nodiscard]] bool knows_rates(const PointRecord& record, const PointPlan& plan) {
    const PointTerms terms = models_.terms(plan);
    const std::vector<double> amounts = terms.amounts(plan, popularity_of(record));
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      const TermName& term = terms.names()[i];
      if (amounts[i] <= 0 || !rates_.unknown.contains(term.name)) continue;
      log_.once(LogLevel::warning, "{} ranks are left out: no point has any {} ({})",
                plan.ranks.ranks, term.name, term.meaning);
      return false;
    }
    return true;
  }

  /// False if so many ranks cannot do it, or nobody knows how long it takes.
  bool write(const PointRecord& record, const std::string& name, std::int64_t ranks) {
    const PointPlan plan = StudyModels::plan(record, ranks);
    if (!models_.can_run(plan, log_) || !knows_rates(record, plan)) return false;
    const fs::path folder = out_ / name;
    make_directories(folder / "ranks");
    const auto put = [&](const fs::path& file, const std::string& text) {
      replace_file((folder / file).string(), text);
    };
    const Told told = tell(record, plan);
    const SmpiPass pass{
        .ranks = plan.ranks,
        .messages = told.messages,
        .layer_seconds = told.compute_seconds / static_cast<double>(told.messages.layers.size())};
    const PointTerms terms = models_.terms(plan);
    const SmpiRates rates = smpi_rates(rates_, terms.node_term(plan), terms.link_term(plan));
    std::string list;
    for (int rank = 0; rank < plan.ranks.sharers(); ++rank) {
      put(fmt::format("ranks/{}", rank), smpi_trace(pass, rates, rank));
      list += fmt::format("ranks/{}\n", rank);
    }
    put("traces", list);
    put("platform.xml", smpi_platform(plan.ranks, rates));
    put("hosts", smpi_hosts(plan.ranks));
    put("run.sh", smpi_script(plan.ranks));
    fs::permissions(folder / "run.sh", fs::perms::owner_exec, fs::perm_options::add);
    put("told.json", told_json(plan, told));
    fmt::print("{}\n", folder.string());
    return true;
  }

  /// What the fit tells of what a trace has: the layers that stand for all, of one pass.
  struct Told {
    StepMessages messages;
    double compute_seconds = 0;
    double exchange_seconds = 0;
    double traces_of_run = 1;  // of a repetition
  };

  [[nodiscard]] Told tell(const PointRecord& record, const PointPlan& plan) {
    const PointTerms terms = models_.terms(plan);
    const ExpertPopularity popularity = popularity_of(record);
    Told told{.messages = terms.messages(plan, popularity)};
    told.traces_of_run = PointTerms::passes(plan) * told.messages.each;
    const std::vector<double> amounts = terms.amounts(plan, popularity);
    const std::size_t steps = amounts.size() - 1;
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      const double seconds = amounts[i] * rate(rates_, terms.names()[i].name) / told.traces_of_run;
      const bool is_exchange = i < steps && i + terms.num_exchange_terms() >= steps;
      (is_exchange ? told.exchange_seconds : told.compute_seconds) += seconds;
    }
    return told;
  }

  static std::string told_json(const PointPlan& plan, const Told& told) {
    return JsonWriter()
               .field("ranks", std::int64_t{plan.ranks.ranks})
               .field("nodes", std::int64_t{plan.ranks.nodes()})
               .field("seconds", told.compute_seconds + told.exchange_seconds)
               .field("compute_seconds", told.compute_seconds)
               .field("exchange_seconds", told.exchange_seconds)
               .field("traces_of_run", told.traces_of_run)
               .text() +
           "\n";
  }

  Log log_;
  fs::path out_;
  const std::vector<StudyRow>& rows_;
  StudyModels models_;
  Rates rates_;
};

}  // namespace

int run_export_smpi(const Command& command) {
  const StudyConfig study = read_study(command.options.study_config);
  const std::vector<StudyRow> rows = read_results(study);
  const int written = SmpiExport(command, study, rows).write(command.options.smpi_ranks);
  require(written > 0, ErrorKind::usage, "{}: there is nothing to export", study.path);
  return 0;
}

}  // namespace moesaic
