#include "launch/options/option_table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <type_traits>

#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

std::string print(bool value) {
  return value ? "true" : "false";
}
std::string print(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string print(double value) {
  return fmt::format("{}", value);
}
std::string print(const std::string& value) {
  return value;
}
std::string print(const std::optional<std::string>& value) {
  return value.value_or("");
}
std::string print(const ByteCount& value) {
  return value.text;
}
std::string print(const std::optional<ByteCount>& value) {
  return value ? value->text : "auto";
}
std::string print(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ", "));
}
std::string print(const std::optional<TimeSpan>& value) {
  return value ? value->text : "";
}
std::string print(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

}  // namespace

std::span<const std::string_view> choices(const OptionRow& row) noexcept {
  const auto* choice = std::get_if<ChoiceField>(&row.field);
  return choice == nullptr ? std::span<const std::string_view>() : choice->names;
}

const VerbRow& verb_row(Verb verb) noexcept {
  return *std::ranges::find(verb_table(), verb, &VerbRow::verb);
}

bool takes(Verb verb, const OptionRow& row) noexcept {
  return (row.verbs & verbs::bit(verb)) != 0;
}

bool runs_alone(Verb verb) noexcept {
  return (verbs::kWithoutRanks & verbs::bit(verb)) != 0;
}

const OptionRow* find_option(std::string_view name, std::optional<Verb> verb) noexcept {
  const OptionRow* found = nullptr;
  for (const OptionRow& row : option_table()) {
    if (!same_name(row.name, name)) continue;
    if (verb && takes(*verb, row)) return &row;
    if (found == nullptr) found = &row;
  }
  return found;
}

const OptionRow* find_short(std::string_view name, std::optional<Verb> verb) noexcept {
  if (name.empty()) return nullptr;
  for (const OptionRow& row : option_table()) {
    const bool is_letter = row.letter != '\0' && name == std::string_view(&row.letter, 1);
    if ((is_letter || name == row.alias) && (!verb || takes(*verb, row))) return &row;
  }
  return nullptr;
}

std::size_t place_of(const OptionRow& row) noexcept {
  return static_cast<std::size_t>(&row - option_table().data());
}

OptionSource source_of(const Command& command, std::string_view option) {
  return command.sources[place_of(*find_option(option, command.verb))];
}

void set_source(Command& command, std::string_view option, OptionSource source) {
  command.sources[place_of(*find_option(option, command.verb))] = source;
}

std::string environment_name(const OptionRow& row) {
  std::string name = "MOESAIC_";
  for (const char c : row.name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string value_text(const OptionRow& row, const Options& options) {
  if (const auto* choice = std::get_if<ChoiceField>(&row.field)) return choice->get(options);
  return std::visit(
      [&](auto field) {
        if constexpr (std::is_member_pointer_v<decltype(field)>) return print(options.*field);
        return std::string();
      },
      row.field);
}

}  // namespace moesaic
