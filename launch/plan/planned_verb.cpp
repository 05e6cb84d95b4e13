#include "launch/plan/planned_verb.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

/// Verbs that --job names, in the order of PlanJob.
constexpr std::array kJobs = {Verb::generate, Verb::serve, Verb::score, Verb::sft};

/// Options of jobs that mean something for a layer of --shape too.
constexpr std::array<std::string_view, 10> kOfShapes = {
    "shape",          "experts", "expert-format", "routing",         "batch-size",
    "ranks-per-node", "threads", "ranks",         "expert-replicas", "transport",
};

bool has_option(Verb verb, const OptionRow& row) {
  if (row.name == "prompt-tokens") return verb == Verb::generate;  // an option of plan, for it
  return takes(verb, *find_option(row.name, verb));
}

/// Options of the program and of the nodes, which any plan takes.
bool is_of_any_job(const OptionRow& row) {
  constexpr std::array<std::string_view, 5> kOfPlans = {"memory", "machine", "json", "config",
                                                        "log-level"};
  return std::ranges::find(kOfPlans, row.name) != kOfPlans.end();
}

void require_option_of_job(const OptionRow& row, Verb verb) {
  const bool is_of_a_job =
      std::ranges::any_of(kJobs, [&](Verb job) { return has_option(job, row); });
  require(!is_of_a_job || has_option(verb, row), ErrorKind::usage,
          "--{} is no option of moesaic {} (--job {})", row.name, verb_row(verb).name,
          verb_row(verb).name);
}

void require_option_of_shape(const OptionRow& row, std::string_view shape) {
  require(std::ranges::find(kOfShapes, row.name) != kOfShapes.end(), ErrorKind::usage,
          "--{} is for a model, and --shape {} is one layer of experts in place of it", row.name,
          shape);
}

}  // namespace

Verb planned_verb(const Options& options) {
  if (options.shape) return Verb::study_point;
  return kJobs[static_cast<std::size_t>(options.plan_job)];
}

void refuse_options_of_others(const Command& command) {
  const Options& options = command.options;
  for (std::size_t i = 0; i < option_table().size(); ++i) {
    const OptionRow& row = option_table()[i];
    const bool is_given = command.sources[i] == OptionSource::command_line;
    if (!is_given || !takes(Verb::plan, row) || is_of_any_job(row)) continue;
    if (options.shape) {
      require_option_of_shape(row, *options.shape);
    } else {
      require_option_of_job(row, planned_verb(options));
    }
  }
}

}  // namespace moesaic
