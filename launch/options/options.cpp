#include "launch/options/options.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "base/split.h"
#include "launch/options/config_file.h"
#include "launch/options/foreign_flags.h"
#include "launch/options/nearest_name.h"
#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kWords = "words";  // what follows the verb and is no flag

/// A value as it was written, and where.
struct Written {
  std::string text;
  std::string where;  // "--top-k", "MOESAIC_TOP_K", "run.ini: top-k"
};

template <typename Number>
Number parse_number(const Written& written, const OptionRow& row, std::string_view kind) {
  Number value{};
  const char* const end = written.text.data() + written.text.size();
  const auto [stop, error] = std::from_chars(written.text.data(), end, value);
  const auto number = static_cast<double>(value);
  require(error != std::errc::result_out_of_range, ErrorKind::usage,
          "{}: {} is beyond what this program counts", written.where, written.text);
  require(error == std::errc() && stop == end && std::isfinite(number), ErrorKind::usage,
          "{}: \"{}\" is not {}", written.where, written.text, kind);
  require(number >= row.least, ErrorKind::usage, "{}: {} is less than {}", written.where,
          written.text, row.least);
  require(number > row.least || !row.is_above_least, ErrorKind::usage, "{}: {} is not above {}",
          written.where, written.text, row.least);
  require(number <= row.most, ErrorKind::usage, "{}: {} is more than {}", written.where,
          written.text, row.most);
  return value;
}

void assign(const Written& written, const OptionRow&, bool& target) {
  const std::string& text = written.text;
  const bool yes = text == "true" || text == "1" || text == "on" || text == "yes";
  const bool no = text == "false" || text == "0" || text == "off" || text == "no";
  require(yes || no, ErrorKind::usage, "{}: \"{}\" is neither true nor false", written.where, text);
  target = yes;
}

void assign(const Written& written, const OptionRow& row, std::int64_t& target) {
  target = parse_number<std::int64_t>(written, row, "a whole number");
}

void assign(const Written& written, const OptionRow& row, double& target) {
  target = parse_number<double>(written, row, "a number");
}

void assign(const Written& written, const OptionRow& row, std::string& target) {
  target = row.one_spelling != nullptr ? row.one_spelling(written.text) : written.text;
}

void assign(const Written& written, const OptionRow&, ByteCount& target) {
  target = parse_bytes(written.text, written.where);
}

void assign(const Written& written, const OptionRow&, std::optional<ByteCount>& target) {
  target.reset();
  if (written.text != "auto") target = parse_bytes(written.text, written.where);
}

void assign(const Written& written, const OptionRow&, std::optional<TimeSpan>& target) {
  target = parse_time_span(written.text, written.where);
}

void assign(const Written& written, const OptionRow&, std::optional<std::string>& target) {
  target = written.text;
}

void assign(const Written& written, const OptionRow&, std::vector<std::string>& target) {
  target.push_back(written.text);
}

void assign(const Written& written, const OptionRow& row, std::vector<std::int64_t>& target) {
  target.clear();
  for (const std::string_view item : split_list(written.text)) {
    target.push_back(
        parse_number<std::int64_t>({std::string(item), written.where}, row, "a whole number"));
  }
}

/// What scripts write where a variable of theirs is not set.
void require_name(const Written& written, const OptionRow& row) {
  const bool is_name = row.value == "FILE" || row.value == "DIR";
  require(!is_name || row.may_be_empty || !written.text.empty(), ErrorKind::usage,
          "{}: \"\" names no {}", written.where, row.value == "DIR" ? "directory" : "file");
}

void set_option(Command& command, const OptionRow& row, const Written& written,
                OptionSource source) {
  require_name(written, row);
  if (const auto* choice = std::get_if<ChoiceField>(&row.field)) {
    require(choice->set(command.options, written.text), ErrorKind::usage,
            "{}: \"{}\" is not one of {}{}{}", written.where, written.text,
            fmt::join(choice->names, ", "), did_you_mean(written.text, choice->names),
            choice->remark(written.text));
  }
  OptionSource& known_source = command.sources[place_of(row)];
  const bool is_stronger = known_source != source;  // they come weakest first
  if (const auto* strings = std::get_if<std::vector<std::string> Options::*>(&row.field);
      strings != nullptr && is_stronger) {
    (command.options.**strings).clear();
  }
  std::visit(
      [&](auto field) {
        if constexpr (std::is_member_pointer_v<decltype(field)>) {
          assign(written, row, command.options.*field);
        }
      },
      row.field);
  known_source = source;
}

/// A flag that other engines have. One dash and several letters would be understood as a letter and
/// its value.
void refuse_foreign(std::string_view flag) {
  const std::string_view hint = foreign_flag_hint(flag);
  require(hint.empty(), ErrorKind::usage, "unknown option {}; {}", flag, hint);
}

/// Names that a user may have meant: all, or those of one verb.
std::vector<std::string_view> option_names(std::optional<Verb> verb) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_table()) {
    if (!verb || takes(*verb, row)) names.push_back(row.name);
  }
  return names;
}

/// Takes the verb's words off the front of `arguments`.
std::optional<Verb> take_verb(std::span<const std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with("-")) return std::nullopt;
  std::vector<std::string_view> names;
  std::vector<std::string_view> fuller;  // that start as typed
  for (const VerbRow& row : verb_table()) {
    const std::vector<std::string_view> words = split(row.name, ' ');
    if (arguments.size() >= words.size() &&
        std::equal(words.begin(), words.end(), arguments.begin())) {
      arguments = arguments.subspan(words.size());
      return row.verb;
    }
    names.push_back(row.name);
    if (words.size() > 1 && words[0] == arguments[0]) fuller.push_back(row.name);
  }
  require(fuller.empty(), ErrorKind::usage, "\"{}\" wants to know what: try moesaic {}",
          arguments[0], fmt::join(fuller, ", moesaic "));
  fail(ErrorKind::usage, "unknown verb \"{}\"; there are {}{}", arguments[0],
       fmt::join(names, ", "), did_you_mean(arguments[0], names));
}

/// All names, and the letters of this verb: a letter may stand for one option with one verb and for
/// another with the next.
po::options_description describe_flags(std::optional<Verb> verb) {
  po::options_description flags;
  for (const OptionRow& row : option_table()) {
    if (find_option(row.name, verb) != &row) continue;
    std::string name(row.name);
    const bool has_letter = row.letter != '\0' && (verb ? takes(*verb, row) : row.flag_only);
    if (has_letter) name += fmt::format(",{}", row.letter);
    auto* value = po::value<std::string>();
    if (row.value.empty()) value->implicit_value("true");
    flags.add_options()(name.c_str(), value);
  }
  flags.add_options()(std::string(kWords).c_str(), po::value<std::vector<std::string>>());
  return flags;
}

/// "-sys" as "--system-prompt", and so on.
std::vector<std::string> without_aliases(std::span<const std::string> arguments,
                                         std::optional<Verb> verb) {
  std::vector<std::string> result(arguments.begin(), arguments.end());
  for (const OptionRow& row : option_table()) {
    if (row.alias.empty() || (verb && !takes(*verb, row))) continue;
    std::ranges::replace(result, fmt::format("-{}", row.alias), fmt::format("--{}", row.name));
  }
  return result;
}

/// A letter that stands for an option with another verb.
void refuse_letter(std::string_view flag, std::optional<Verb> verb) {
  if (!verb || flag.size() != 2 || flag[1] == '-') return;
  for (const OptionRow& row : option_table()) {
    require(row.letter != flag[1], ErrorKind::usage, "{} (--{}) is no option of moesaic {}{}", flag,
            row.name, verb_row(*verb).name, other_verbs_hint(row.name));
  }
}

/// Splits the command line into (name, value) pairs; words that are no flag get the name kWords.
std::vector<po::option> parse_flags(std::span<const std::string> arguments,
                                    std::optional<Verb> verb) {
  namespace style = po::command_line_style;
  const po::options_description flags = describe_flags(verb);
  po::positional_options_description words;
  words.add(std::string(kWords).c_str(), -1);
  try {
    return po::command_line_parser(without_aliases(arguments, verb))
        .options(flags)
        .positional(words)
        .style(style::unix_style & ~style::allow_guessing)
        .run()
        .options;
  } catch (const po::unknown_option& error) {
    const std::string option = error.get_option_name();
    const std::string name = option.substr(0, option.find('='));
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    refuse_foreign(name);
    refuse_letter(name, verb);
    fail(ErrorKind::usage, "unknown option {}{}", name,
         did_you_mean(bare, option_names(verb), "--"));
  } catch (const po::error& error) {
    fail(ErrorKind::usage, "{}", error.what());
  }
}

/// Of a name without dashes: a flag's letter, or its short name, has none of these forms.
std::string hint_of(std::string_view name, std::optional<Verb> verb,
                    std::span<const std::string_view> candidates) {
  const OptionRow* const row = find_short(name, verb);
  return row == nullptr ? did_you_mean(name, candidates)
                        : fmt::format("; it is {} here", row->name);
}

/// --config says which file is read, and so cannot come later than a flag.
bool is_only_a_flag(const OptionRow& row) {
  return row.flag_only || row.name == "config";
}

bool takes_several(const OptionRow& row) {
  return std::holds_alternative<std::vector<std::string> Options::*>(row.field);
}

/// Later flags win, so that what follows a script's line changes it. But a text or a file of the
/// user's is not dropped without a word.
void require_first(const Command& command, const OptionRow& row, std::string_view text) {
  require(command.sources[place_of(row)] != OptionSource::command_line, ErrorKind::usage,
          "\"{}\" and \"{}\": there can be one --{}", value_text(row, command.options), text,
          row.name);
}

void require_option_of_verb(const Command& command, const OptionRow& row, std::string_view name) {
  require(!command.verb || takes(*command.verb, row), ErrorKind::usage,
          "{} is no option of moesaic {}{}", name, command.verb ? verb_row(*command.verb).name : "",
          other_verbs_hint(row.name));
}

/// The option that a bare word after the verb sets; empty if there is none.
std::string_view name_of_words(std::optional<Verb> verb) {
  if (verb == Verb::inspect) return "model";
  return verb && (verbs::kStudies & verbs::bit(*verb)) != 0 ? "study" : "";
}

/// A word after the verb: `key=value`, or the directory of `inspect`, the file of a study.
void apply_word(Command& command, const std::string& word) {
  const std::size_t equals = word.find('=');
  const bool is_pair = equals != std::string::npos && word.find('/') > equals;  // "a/b=c" is a path
  if (!is_pair) {
    const std::string_view name = name_of_words(command.verb);
    require(!name.empty(), ErrorKind::usage, "\"{}\" is neither a flag nor name=value", word);
    const OptionRow& row = *find_option(name, command.verb);
    require_first(command, row, word);
    set_option(command, row, {word, std::string(row.value)}, OptionSource::command_line);
    return;
  }
  const std::string name = word.substr(0, equals);
  const OptionRow* row = find_option(name, command.verb);
  require(row != nullptr, ErrorKind::usage, "unknown option \"{}\" in \"{}\"{}", name, word,
          hint_of(name, command.verb, option_names(command.verb)));
  require_option_of_verb(command, *row, name);
  require(!is_only_a_flag(*row), ErrorKind::usage, "\"{}\": {} can only be given as the flag --{}",
          word, name, row->name);
  set_option(command, *row, {word.substr(equals + 1), name}, OptionSource::command_line);
}

void apply_flags(Command& command, const std::vector<po::option>& flags) {
  for (const po::option& flag : flags) {
    if (!flag.original_tokens.empty()) refuse_foreign(flag.original_tokens.front());
    if (flag.string_key == kWords || flag.position_key >= 0) {
      for (const std::string& word : flag.value) apply_word(command, word);
      continue;
    }
    const OptionRow& row = *find_option(flag.string_key, command.verb);
    require_option_of_verb(command, row, fmt::format("--{}", row.name));
    // Boost gives a switch the word that follows, too; only what stands after '=' is its value.
    const bool took_word = row.value.empty() && flag.original_tokens.size() > 1;
    const std::string text = flag.value.empty() || took_word ? "true" : flag.value.front();
    const bool is_text = std::holds_alternative<std::optional<std::string> Options::*>(row.field);
    if (is_text || row.name == "config") {
      require_first(command, row, text);
    }
    set_option(command, row, {text, fmt::format("--{}", row.name)}, OptionSource::command_line);
    if (took_word) apply_word(command, flag.original_tokens[1]);
  }
}

void apply_environment(Command& command, const Environment& environment) {
  std::vector<std::string> known;
  for (const OptionRow& row : option_table()) {
    if (row.flag_only) continue;
    const std::string& name = known.emplace_back(environment_name(row));
    const auto found = environment.find(name);
    if (found == environment.end() || (command.verb && !takes(*command.verb, row))) continue;
    set_option(command, row, {found->second, name}, OptionSource::environment);
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const auto& [name, value] : environment) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    command.notes.push_back(
        fmt::format("environment variable {} is not an option{}", name, did_you_mean(name, names)));
  }
}

void apply_file(Command& command, const std::string& path) {
  std::map<const OptionRow*, std::int64_t> lines;
  for (const ConfigEntry& entry : parse_config(read_file(path, kMaxConfigBytes), path)) {
    const OptionRow* row = find_option(entry.name, command.verb);
    const std::string where = fmt::format("{} line {}", path, entry.line);
    require(row != nullptr, ErrorKind::usage, "{}: unknown option {}{}", where,
            json_quote(entry.name), hint_of(entry.name, command.verb, option_names({})));
    require(!is_only_a_flag(*row), ErrorKind::usage,
            "{}: {} cannot stand in a file, only as the flag --{}", where, row->name, row->name);
    const auto [before, is_first] = lines.emplace(row, entry.line);
    require(is_first || takes_several(*row), ErrorKind::usage, "{}: {} stands in line {} already",
            where, row->name, before->second);
    if (command.verb && !takes(*command.verb, *row)) continue;
    set_option(command, *row, {entry.value, fmt::format("{}: {}", where, row->name)},
               OptionSource::file);
  }
}

/// The --config that counts, found before the rest is resolved.
std::string config_path(const std::vector<po::option>& flags, const Environment& environment) {
  std::string path;
  if (const auto found = environment.find("MOESAIC_CONFIG"); found != environment.end()) {
    path = found->second;
  }
  for (const po::option& flag : flags) {
    if (flag.string_key == "config" && !flag.value.empty()) path = flag.value.front();
  }
  return path;
}

}  // namespace

Command parse_command(std::span<const std::string> arguments, const Environment& environment) {
  Command command;
  command.sources.assign(option_table().size(), OptionSource::preset);
  command.verb = take_verb(arguments);
  const std::vector<po::option> flags = parse_flags(arguments, command.verb);
  if (const std::string path = config_path(flags, environment); !path.empty()) {
    apply_file(command, path);
  }
  apply_environment(command, environment);
  apply_flags(command, flags);
  return command;
}

std::string stop_file(const Command& command) {
  const bool has_directory = command.verb == Verb::convert || command.verb == Verb::sft;
  std::string result =
      has_directory ? command.options.output_dir : command.options.out.value_or("");
  while (result.ends_with('/')) result.pop_back();
  if (result.empty()) return "";
  return result + (command.verb == Verb::sft ? "/stop" : ".stop");
}

Environment moesaic_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with("MOESAIC_") || equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace moesaic
