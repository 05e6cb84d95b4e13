#include "launch/plan/job_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/small_file.h"
#include "base/split.h"
#include "launch/options/config_file.h"
#include "launch/options/option_table.h"
#include "launch/options/shell_word.h"
#include "launch/plan/planned_verb.h"
#include "launch/plan/shape_plan.h"

namespace moesaic {
namespace {

/// `options` as the job has them: of a model whose configuration alone is there, the directory that
/// will hold the weights.
Options options_of_job(Options options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(options.model, error)) return options;
  const fs::path directory = fs::path(options.model).parent_path();
  options.model = directory.empty() ? "." : directory.string();
  return options;
}

std::string option_words(const OptionRow& row, const std::string& value) {
  const std::string flag = fmt::format(" --{}", row.name);
  if (!row.value.empty()) return flag + " " + shell_word(value);
  return value == "true" ? flag : flag + "=" + value;  // a switch that is off
}

/// The options of `command` that the planned verb has too.
std::string planned_words(const Command& command, Verb verb) {
  const Options options = options_of_job(command.options);
  std::string text;
  for (std::size_t i = 0; i < option_table().size(); ++i) {
    const OptionRow& row = option_table()[i];
    const bool is_given = command.sources[i] != OptionSource::preset;
    const OptionRow* const of_job = find_option(row.name, verb);
    if (!is_given || !takes(Verb::plan, row) || !takes(verb, *of_job)) continue;
    // Mean another thing, or nothing once what a file says stands on the line.
    constexpr std::array kOfPlan = {"ranks-per-node", "gpu-memory", "json", "config"};
    if (std::ranges::find(kOfPlan, row.name) != kOfPlan.end()) continue;
    text += option_words(row, value_text(row, options));
  }
  return text;
}

/// Options that a plan does not have, as the file says them; what the environment says goes before
/// it, and is there when the line is typed.
std::string words_of_file(const Command& job, bool has_memory) {
  const std::string& path = job.options.config;
  if (path.empty()) return "";
  std::string text;
  for (const ConfigEntry& entry : parse_config(read_file(path, kMaxConfigBytes), path)) {
    const OptionRow& row = *find_option(entry.name, job.verb);
    const bool is_of_plan = takes(Verb::plan, *find_option(row.name, Verb::plan));
    if (is_of_plan || source_of(job, row.name) != OptionSource::file) continue;
    if (has_memory && row.name == "memory-limit") continue;  // --memory stands for it
    text += option_words(row, entry.value);
  }
  return text;
}

/// What the verb has to be told besides, for the user to fill in.
std::string missing_words(const Command& job) {
  const auto is_told = [&](std::string_view name) {
    return source_of(job, name) != OptionSource::preset;
  };
  if (job.verb == Verb::sft) {
    return std::string(is_told("data") ? "" : " --data FILE") +
           (is_told("output") ? "" : " -o OUTDIR");
  }
  if (job.verb == Verb::serve) return "";
  const bool has_texts = is_told("file") || (job.verb == Verb::generate && is_told("prompt"));
  return has_texts ? "" : " -f FILE";
}

}  // namespace

Command command_of_job(const Command& command) {
  const Verb verb = planned_verb(command.options);
  std::vector<std::string> arguments;
  for (const std::string_view word : split(verb_row(verb).name, ' ')) arguments.emplace_back(word);
  const std::string& path = command.options.config;
  if (!path.empty()) arguments.insert(arguments.end(), {"--config", path});
  return parse_command(arguments, moesaic_environment());
}

std::string job_command(const Command& command, const CostRanks& ranks) {
  const Verb verb = planned_verb(command.options);
  std::string text;
  if (ranks.ranks > 1) {
    text = fmt::format("mpirun -n {} --map-by ppr:{}:node --bind-to none ", ranks.ranks,
                       ranks.on_node());
  }
  const Command job = command_of_job(command);
  text += fmt::format("moesaic {}", verb_row(verb).name);
  text +=
      planned_words(command, verb) + words_of_file(job, command.options.memory_limit.has_value());
  if (const auto& limit = command.options.memory_limit) {
    text += " --memory-limit " + limit->text;
  }
  if (verb == Verb::study_point) return text + shape_words(command.options);
  return text + missing_words(job);
}

}  // namespace moesaic
