#include "launch/options/option_help.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "launch/options/config_file.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

constexpr std::size_t kIndent = 28;
constexpr std::size_t kWidth = 100;

constexpr std::array<std::string_view, 4> kSourceNames = {"default", "file", "environment",
                                                          "command line"};

/// `text` in lines that start at column kIndent.
std::string wrap(std::string_view text) {
  std::string out;
  std::size_t column = kIndent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (column > kIndent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(kIndent, ' ');
      column = kIndent;
    } else if (column > kIndent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

/// The choices of a row, with spaces where they do not fit into one line.
std::string choices_text(const OptionRow& row) {
  const std::string text = fmt::format("{}", fmt::join(choices(row), "|"));
  return kIndent + text.size() <= kWidth ? text : fmt::format("{}", fmt::join(choices(row), ", "));
}

std::string option_line(const OptionRow& row) {
  std::string flag = row.letter == '\0' ? "      " : fmt::format("  -{}, ", row.letter);
  flag += fmt::format("--{}", row.name);
  if (!row.alias.empty()) flag = fmt::format("  -{}, --{}", row.alias, row.name);
  if (!row.value.empty()) flag += fmt::format(" {}", row.value);
  std::string help(row.help);
  if (!choices(row).empty()) help += fmt::format(": {}", choices_text(row));
  const std::string preset = value_text(row, Options{});
  if (!row.value.empty() && !preset.empty()) help += fmt::format(" (default: {})", preset);
  const std::string gap = flag.size() + 2 > kIndent ? "\n" + std::string(kIndent, ' ')
                                                    : std::string(kIndent - flag.size(), ' ');
  return flag + gap + wrap(help) + "\n";
}

/// What stands behind the name of a row, each in a line of its own.
std::vector<std::string> values_of(const OptionRow& row, const Options& options) {
  const auto* strings = std::get_if<std::vector<std::string> Options::*>(&row.field);
  if (strings == nullptr || (options.**strings).empty()) return {value_text(row, options)};
  return options.**strings;
}

/// The row's value: numbers, lists of them and booleans as they are, anything else as a string.
std::string json_value(const OptionRow& row, const Options& options) {
  const std::string text = value_text(row, options);
  return std::visit(
      [&](auto field) {
        if constexpr (std::is_member_pointer_v<decltype(field)>) {
          using Value = std::remove_cvref_t<decltype(options.*field)>;
          if constexpr (std::is_arithmetic_v<Value>) return text;
          if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) return "[" + text + "]";
          if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            return json_strings(options.*field);
          }
          if constexpr (std::is_same_v<Value, std::optional<std::string>>) {
            if (!(options.*field)) return std::string("null");
          }
        }
        return json_quote(text);
      },
      row.field);
}

/// How a verb is used: "score -m DIR -f FILE".
std::string usage_of(const VerbRow& row) {
  return fmt::format("{}{}{}", row.name, row.arguments.empty() ? "" : " ", row.arguments);
}

/// A line for each verb whose name begins with `first`.
std::string verb_lines(std::string_view first) {
  std::size_t width = 0;
  for (const VerbRow& row : verb_table()) width = std::max(width, usage_of(row).size());
  std::string text;
  for (const VerbRow& row : verb_table()) {
    if (!row.name.starts_with(first)) continue;
    text += fmt::format("  {:<{}}  {}\n", usage_of(row), width, row.help);
  }
  return text;
}

}  // namespace

std::string group_help(std::string_view group) {
  const std::string lines = verb_lines(fmt::format("{} ", group));
  if (lines.empty()) return "";
  return fmt::format(
      "usage: moesaic {} WHAT [OPTIONS] [name=value ...]\n\n{}\nmoesaic {} WHAT --help lists the "
      "options.\n",
      group, lines, group);
}

std::string overall_help() {
  std::string text =
      "moesaic runs Mixture-of-Experts language models across MPI ranks.\n\n"
      "usage: [mpirun -n RANKS] moesaic VERB [OPTIONS] [name=value ...]\n\n";
  return text + verb_lines("") +
         "\nmoesaic VERB --help lists the options of a verb. Besides --top-k 5, top-k=5 can be "
         "written, or\nMOESAIC_TOP_K=5 in the environment, or top-k = 5 in a file that --config "
         "names; the command line\nbeats the environment, which beats the file. moesaic --version "
         "prints versions.\n\n"
         "Exit codes: 0 done, 1 unexpected, 2 usage, 3 bad input file, 4 not enough memory or "
         "other resource,\n5 another rank failed or timed out, 6 interrupted: what was written is "
         "there.\n";
}

std::string verb_help(Verb verb) {
  const VerbRow& about = verb_row(verb);
  std::string text = fmt::format("usage: {}moesaic {} {}{}[OPTIONS] [name=value ...]\n{}\n",
                                 runs_alone(verb) ? "" : "[mpirun -n RANKS] ", about.name,
                                 about.arguments, about.arguments.empty() ? "" : " ", about.help);
  text += about.details;
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!takes(verb, row)) continue;
    if (row.group != group) text += fmt::format("\n{}\n", row.group);
    group = row.group;
    text += option_line(row);
  }
  return text;
}

std::string config_text(const Command& command, const ElsewhereOptions& elsewhere) {
  std::string text;
  for (std::size_t i = 0; i < option_table().size(); ++i) {
    const OptionRow& row = option_table()[i];
    if (row.flag_only || (command.verb && !takes(*command.verb, row))) continue;
    const bool is_given = command.sources[i] != OptionSource::preset;
    const bool is_elsewhere =
        !is_given && std::ranges::find(elsewhere.names, row.name) != elsewhere.names.end();
    const std::string_view source =
        is_elsewhere ? elsewhere.source
                     : kSourceNames[static_cast<std::size_t>(command.sources[i])];
    for (const std::string& value : values_of(row, command.options)) {
      const bool has_value = !is_elsewhere && (is_given || !value.empty());
      const bool is_read = has_value && row.name != "config";  // a file names no other file
      text += fmt::format("{:<39} # {}\n",
                          fmt::format("{}{} = {}", is_read ? "" : "# ", row.name,
                                      has_value ? config_value(value) : ""),
                          source);
    }
  }
  return text;
}

std::string config_json(const Command& command) {
  JsonWriter out;
  for (const OptionRow& row : option_table()) {
    if (row.flag_only || (command.verb && !takes(*command.verb, row))) continue;
    out.raw_field(row.name, json_value(row, command.options));
  }
  return out.text();
}

}  // namespace moesaic
