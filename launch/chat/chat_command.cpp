#include "launch/chat/chat_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/split.h"
#include "launch/options/nearest_name.h"

namespace moesaic {
namespace {

using Kind = ChatCommand::Kind;

struct Row {
  std::string_view name;
  Kind kind;
  std::string_view argument;  // empty: none
  std::string_view help;
};

constexpr std::array kRows = {
    Row{"help", Kind::help, "", "this"},
    Row{"retry", Kind::retry, "", "another answer to the last question"},
    Row{"undo", Kind::undo, "", "takes the last question and its answer back"},
    Row{"reset", Kind::reset, "", "begins anew, with the same system prompt"},
    Row{"system", Kind::system, "TEXT",
        "sets the system prompt (\"\" for none); without TEXT shows it"},
    Row{"save", Kind::save, "FILE",
        "writes the conversation as a line of JSON, as generate --chat -f reads it"},
    Row{"load", Kind::load, "FILE", "goes on with such a conversation"},
    Row{"stats", Kind::stats, "", "tokens and speeds"},
    Row{"exit", Kind::exit, "", "ends; so do /quit, /bye and Ctrl-D"},
};
/// Other names that hands know.
constexpr std::array kOthers = {Row{"quit", Kind::exit, "", ""}, Row{"bye", Kind::exit, "", ""},
                                Row{"clear", Kind::reset, "", ""},
                                Row{"regen", Kind::retry, "", ""}, Row{"?", Kind::help, "", ""}};

const Row* find_row(std::string_view name) {
  const auto is_it = [&](const Row& row) { return row.name == name; };
  const auto found = std::ranges::find_if(kRows, is_it);
  if (found != kRows.end()) return &*found;
  const auto other = std::ranges::find_if(kOthers, is_it);
  return other == kOthers.end() ? nullptr : &*other;
}

[[noreturn]] void refuse(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  fail(ErrorKind::usage,
       "unknown command /{}{}; /help lists them, and what stands between \"\"\" is no command",
       name, did_you_mean(name, names, "/"));
}

}  // namespace

std::optional<ChatCommand> parse_chat_command(const std::string& message) {
  if (!message.starts_with('/')) return std::nullopt;
  const std::string_view all = std::string_view(message).substr(1);
  const std::string_view name = all.substr(0, all.find_first_of(" \t\n"));
  const bool is_word = std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '?'; });
  if (name.empty() || !is_word) return std::nullopt;  // such as a path
  const Row* const row = find_row(name);
  if (row == nullptr) refuse(name);
  const std::string argument(trimmed(all.substr(name.size())));
  require(!row->argument.empty() || argument.empty(), ErrorKind::usage,
          "/{} takes nothing else, but there is \"{}\"", name, argument);
  return ChatCommand{row->kind, argument};
}

std::string chat_help() {
  std::string text;
  for (const Row& row : kRows) {
    const std::string usage = fmt::format("/{} {}", row.name, row.argument);
    text += fmt::format("  {:<14}{}\n", usage, row.help);
  }
  return text +
         "A line that ends in \\ goes on with the next; \"\"\" begins and ends a text of several "
         "lines.\nCtrl-C stops an answer; twice at the prompt, it ends the program.\n";
}

}  // namespace moesaic
