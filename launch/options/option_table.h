#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launch/options/choices.h"
#include "launch/options/options.h"

namespace moesaic {

/// The member of Options that a row sets. A ByteCount that is not set reads "auto"; strings in a
/// vector come from the option given several times.
using OptionField =
    std::variant<bool Options::*, std::int64_t Options::*, double Options::*,
                 std::string Options::*, std::optional<std::string> Options::*,
                 std::vector<std::int64_t> Options::*, std::vector<std::string> Options::*,
                 ByteCount Options::*, std::optional<ByteCount> Options::*,
                 std::optional<TimeSpan> Options::*, ChoiceField>;

/// One option. All of its forms come from here: --name and -letter, MOESAIC_NAME, `name = value` in
/// a file, its line in --help. A name, like a letter, may stand for one option with one verb and
/// for another with the next.
struct OptionRow {
  std::string_view name;
  char letter = '\0';      // '\0': none
  std::string_view value;  // what stands for its value in --help; empty for a switch
  OptionField field;
  std::string_view group;
  std::uint32_t verbs = 0;  // bit 1 << verb
  std::string_view help;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool flag_only = false;       // has no environment or file form
  bool may_differ = false;      // between ranks: what a rank reads, writes or has
  std::string_view alias{};     // a short name of several letters, after one '-'
  bool is_above_least = false;  // `least` itself is no value
  bool may_be_empty = false;    // of a FILE or DIR: "" means that there is to be none
  std::string (*one_spelling)(const std::string& text) = nullptr;  // of a text that has several
};

struct VerbRow {
  Verb verb;
  std::string_view name;       // words as typed
  std::string_view arguments;  // the usual ones
  std::string_view help;
  std::string_view details{};  // more of it, in lines that end in \n
};

[[nodiscard]] std::span<const OptionRow> option_table() noexcept;
/// The part of it that is about the exchange between ranks.
[[nodiscard]] std::span<const OptionRow> exchange_rows() noexcept;
/// The part of it that is about GPUs.
[[nodiscard]] std::span<const OptionRow> gpu_rows() noexcept;
/// The part of it that is for `moesaic sft` alone.
[[nodiscard]] std::span<const OptionRow> sft_rows() noexcept;
/// The part of it that is for `moesaic plan` and the machine files that it reads.
[[nodiscard]] std::span<const OptionRow> plan_rows() noexcept;
/// The part of it that is for `moesaic serve` alone.
[[nodiscard]] std::span<const OptionRow> serve_rows() noexcept;
/// The part of it that is for `moesaic study ...` alone.
[[nodiscard]] std::span<const OptionRow> study_rows() noexcept;
[[nodiscard]] std::span<const VerbRow> verb_table() noexcept;

/// The only values that the row takes; empty if it takes others.
[[nodiscard]] std::span<const std::string_view> choices(const OptionRow& row) noexcept;
[[nodiscard]] const VerbRow& verb_row(Verb verb) noexcept;
[[nodiscard]] bool takes(Verb verb, const OptionRow& row) noexcept;
/// Whether the verb starts no MPI: it runs in one process, on a login node too.
[[nodiscard]] bool runs_alone(Verb verb) noexcept;
/// The row of this name that `verb` takes, else any of this name; '_' counts as '-'.
[[nodiscard]] const OptionRow* find_option(std::string_view name,
                                           std::optional<Verb> verb) noexcept;
/// The option that `verb`, or any, takes and whose letter or short name this is, or null.
[[nodiscard]] const OptionRow* find_short(std::string_view name, std::optional<Verb> verb) noexcept;
/// Of a row of the table in it, and of its source in Command::sources.
[[nodiscard]] std::size_t place_of(const OptionRow& row) noexcept;
/// "MOESAIC_TOP_K" for "top-k".
[[nodiscard]] std::string environment_name(const OptionRow& row);
/// The row's value in `options` as text; empty if it is not set.
[[nodiscard]] std::string value_text(const OptionRow& row, const Options& options);

}  // namespace moesaic
