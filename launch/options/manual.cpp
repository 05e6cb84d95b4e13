#include "launch/options/manual.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/split.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

/// `text` without what roff would take for a command of its own.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  const bool looks_like_a_command = out.starts_with('.') || out.starts_with('\'');
  return looks_like_a_command ? "\\&" + out : out;
}

/// The verbs that take an option: "generate, score".
std::string verbs_of(const OptionRow& row) {
  std::vector<std::string_view> names;
  for (const VerbRow& verb : verb_table()) {
    if (takes(verb.verb, row)) names.push_back(verb.name);
  }
  return names.size() == verb_table().size() ? "all verbs"
                                             : fmt::format("{}", fmt::join(names, ", "));
}

std::string option_entry(const OptionRow& row) {
  std::string text = ".TP\n";
  if (row.letter != '\0') text += fmt::format("\\fB\\-{}\\fR, ", row.letter);
  text += fmt::format("\\fB\\-\\-{}\\fR", escaped(row.name));
  if (!row.value.empty()) text += fmt::format(" \\fI{}\\fR", escaped(row.value));
  text += fmt::format("\n{}", escaped(row.help));
  if (!choices(row).empty()) text += fmt::format(": {}", fmt::join(choices(row), ", "));
  const std::string preset = value_text(row, Options{});
  if (!row.value.empty() && !preset.empty()) {
    text += fmt::format(" (default: {})", escaped(preset));
  }
  return text + fmt::format(".\n\\fI{}\\fR\n", verbs_of(row));
}

std::string verbs_section() {
  std::string text = ".SH VERBS\n";
  for (const VerbRow& row : verb_table()) {
    text += fmt::format(".TP\n\\fB{}\\fR {}\n{}.\n", row.name, escaped(row.arguments),
                        escaped(row.help));
    if (row.details.empty()) continue;
    text += ".RS\n";
    for (const std::string_view line : split(row.details, '\n')) {
      text += line.empty() ? ".PP\n" : escaped(line) + "\n";
    }
    text += ".RE\n";
  }
  return text;
}

std::string options_section() {
  std::string text = ".SH OPTIONS\n";
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (row.group != group) text += fmt::format(".SS {}\n", row.group);
    group = row.group;
    text += option_entry(row);
  }
  return text;
}

/// Flags of a verb: "--model -m --json ...".
std::string flags_of(Verb verb) {
  std::string text;
  for (const OptionRow& row : option_table()) {
    if (!takes(verb, row)) continue;
    text += fmt::format("{}--{}", text.empty() ? "" : " ", row.name);
    if (row.letter != '\0') text += fmt::format(" -{}", row.letter);
  }
  return text;
}

/// Lines of a case over "VERB FLAG".
std::string choices_of(const VerbRow& verb) {
  std::string text;
  for (const OptionRow& row : option_table()) {
    if (!takes(verb.verb, row) || choices(row).empty()) continue;
    text += fmt::format("    \"{} --{}\") words=\"{}\" ;;\n", verb.name, row.name,
                        fmt::join(choices(row), " "));
  }
  return text;
}

}  // namespace

std::string manual_page() {
  constexpr std::string_view kEnd = R"(.SH ENVIRONMENT AND FILES
Besides \fB\-\-top\-k 5\fR, \fBtop\-k=5\fR can be written, or \fBMOESAIC_TOP_K=5\fR in the
environment, or \fBtop\-k = 5\fR in a file that \fB\-\-config\fR names. The command line beats the
environment, which beats the file. In a file, # starts a comment at the beginning of a line or
behind a space; a value in double quotes has the escapes of JSON, such as \fB\e\e\fR for a backslash, one
in single quotes is refused; options of other verbs are skipped.
.SH EXIT STATUS
0 done, 1 unexpected, 2 usage, 3 bad input file, 4 not enough memory or other resource, 5 another rank
failed or timed out, 6 interrupted: what was written is there.
.SH SEE ALSO
.BR mpirun (1)
)";
  return fmt::format(
             ".TH MOESAIC 1 \"\" \"moesaic {}\" \"User Commands\"\n.SH NAME\nmoesaic \\- runs "
             "Mixture\\-of\\-Experts language models across MPI ranks\n.SH SYNOPSIS\n[\\fBmpirun "
             "\\-n\\fR \\fIRANKS\\fR] \\fBmoesaic\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR] "
             "[\\fIname\\fR=\\fIvalue\\fR ...]\n",
             MOESAIC_VERSION) +
         verbs_section() + options_section() + std::string(kEnd);
}

std::string bash_completion() {
  std::map<std::string, std::set<std::string_view>> next_words;  // by the words of a verb before
  std::string flags;
  std::string values;
  for (const VerbRow& row : verb_table()) {
    std::string before;
    for (const std::string_view word : split(row.name, ' ')) {
      next_words[before].insert(word);
      before += fmt::format("{}{}", before.empty() ? "" : " ", word);
    }
    flags += fmt::format("      \"{}\") words=\"{}\" ;;\n", row.name, flags_of(row.verb));
    values += choices_of(row);
  }
  next_words[""].insert({"help", "--help", "--version"});
  std::string next;
  for (const auto& [before, words] : next_words) {
    next += fmt::format("    \"{}\") echo \"{}\" ;;\n", before, fmt::join(words, " "));
  }
  return fmt::format(R"(# Completes moesaic in bash. Made from the program's table of options.
_moesaic_next_words() {{ # what may follow these words of a verb
  case $1 in
{}  esac
}}
_moesaic() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local verb="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ " $(_moesaic_next_words "$verb") " == *" $word "* ]] || break
    verb=${{verb:+$verb }}$word
  done
  words=$(_moesaic_next_words "$verb")
  if [[ -n $words ]]; then
    :
  elif [[ $current == -* ]]; then
    case $verb in
{}    esac
  else
    case "$verb $previous" in
{}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _moesaic moesaic
)",
                     next, flags, values);
}

}  // namespace moesaic
