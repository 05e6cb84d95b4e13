#include "launch/sft/sft_output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <vector>

#include "base/directory.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/job/written_files.h"
#include "launch/options/option_help.h"
#include "launch/options/option_table.h"
#include "launch/sft/metrics.h"
#include "launch/sft/sft_data.h"
#include "src/checkpoint/mapped_file.h"
#include "src/lora/adapter_files.h"
#include "src/train/train_state.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOptionsFile = "options.ini";

fs::path options_path(const Options& options) {
  return fs::path(options.output_dir) / kOptionsFile;
}

bool is_filled(const std::string& directory) {
  std::error_code error;
  return fs::exists(directory, error) && !fs::is_empty(directory, error);
}

/// What a run writes into OUTDIR beside checkpoints.
constexpr auto kRunFiles =
    std::to_array<std::string_view>({kOptionsFile, kMetricsFile, kLossPlotFile, kHeldOutFile,
                                     kAdapterConfigFile, kAdapterTensorsFile});

bool is_run_file(std::string_view file) {
  return std::ranges::find(kRunFiles, file) != kRunFiles.end();
}

/// What a run that was killed has left half written.
bool is_part(std::string_view file) {
  return is_run_file(name_of_part(file)) || is_checkpoint_part(file);
}

/// Of a checkpoint's directory, whole or not.
bool names_checkpoint(std::string_view name) {
  return checkpoint_steps(name).has_value() || is_checkpoint_part(name);
}

/// Whether a file or directory of OUTDIR with this name is one that a run makes, or a part of one
/// that was killed.
bool is_of_a_run(std::string_view file) {
  return is_run_file(file) || is_part(file) || checkpoint_steps(file);
}

/// Not in a directory that another run writes and removes.
void require_outside_checkpoints(const std::string& directory) {
  std::error_code error;
  fs::path place = full_path(directory);
  for (; place.has_relative_path(); place = place.parent_path()) {
    require(!names_checkpoint(place.filename().string()) ||
                !fs::exists(place.parent_path() / kOptionsFile, error),
            ErrorKind::usage,
            "--output {}: {} is for a checkpoint of the run in {}, which removes it: take another",
            directory, place.string(), place.parent_path().string());
  }
}

/// Ours: other programs have directories of these names too.
bool has_checkpoints(const std::string& directory) {
  std::error_code error;
  const auto entries = entries_of(directory, error);
  return std::ranges::any_of(entries, [](const fs::directory_entry& entry) {
    return checkpoint_steps(entry.path().filename().string()) &&
           has_train_state(entry.path().string());
  });
}

/// Checkpoints have all that a run goes on with, also where somebody has taken options.ini.
bool is_run(const Options& options) {
  std::error_code error;
  return fs::exists(options_path(options), error) ||
         (options.resume && has_checkpoints(options.output_dir));
}

/// A file, or the directory of another program's adapter.
bool is_in_the_way(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_regular_file(error) || (fs::exists(entry.path() / kAdapterTensorsFile, error) &&
                                          !has_train_state(entry.path().string()));
}

/// What has the name of a checkpoint and is none is in the way.
void require_checkpoints(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : entries_of(directory, error)) {
    const std::string name = entry.path().filename().string();
    require(!names_checkpoint(name) || !is_in_the_way(entry), ErrorKind::usage,
            "{}: was not made by moesaic sft, and is where checkpoints are: put "
            "it elsewhere",
            entry.path().string());
  }
}

/// What is in checkpoints, and no run has written.
void require_nothing_else(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : entries_of(directory, error)) {
    if (!checkpoint_steps(entry.path().filename().string())) continue;
    for (const auto& file : entries_of(entry.path(), error)) {
      require(is_of_checkpoint(file.path().filename().string()), ErrorKind::usage,
              "{}: was not made by moesaic sft, and --overwrite would take its place: put it "
              "elsewhere",
              file.path().string());
    }
  }
}

/// Before what is old is lost.
void require_room_without(std::span<const fs::path> old, const std::string& directory,
                          std::int64_t bytes) {
  std::error_code error;
  std::uintmax_t room = fs::space(directory, error).available;
  if (error) return;  // the first file tells
  const auto add = [&](const fs::path& path) {
    const std::uintmax_t size = fs::file_size(path, error);
    if (!error) room += size;
  };
  for (const fs::path& path : old) {
    add(path);
    if (fs::is_symlink(path, error)) continue;  // of which the link alone goes
    for (const auto& file : entries_of(path, error)) add(file.path());
  }
  require(room >= static_cast<std::uintmax_t>(bytes), ErrorKind::resource,
          "{}: {} for checkpoints and the adapter are more than the {} that the disk has without "
          "the run that is there",
          directory, format_bytes(bytes), format_bytes(static_cast<std::int64_t>(room)));
}

/// What a run that goes on with an adapter has from there.
constexpr std::array<std::string_view, 5> kOfAdapter = {"lora-rank", "lora-alpha", "rslora",
                                                        "lora-dropout", "lora-targets"};

bool comes_from_adapter(std::string_view option, const Command& command) {
  return command.options.lora && std::ranges::find(kOfAdapter, option) != kOfAdapter.end() &&
         source_of(command, option) == OptionSource::preset;
}

/// Whether a run makes the file in `directory`, or something that it would be lost with.
bool is_of_run_in(const std::string& directory, const std::string& path) {
  const fs::path file = full_path(path).lexically_relative(full_path(directory));
  return !directory.empty() && !file.empty() && is_of_a_run(file.begin()->string());
}

/// False also where one of them is not there.
bool have_same_bytes(const fs::path& one, const fs::path& other) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(one, error);
  if (error || fs::file_size(other, error) != size || error) return false;
  const MappedFile a(one.string());
  const MappedFile b(other.string());
  return reading(
      a, [&] { return reading(b, [&] { return std::ranges::equal(a.bytes(), b.bytes()); }); });
}

/// As those that an earlier run held out may be.
void require_data_outside(std::string_view option, const std::optional<std::string>& path,
                          const std::string& directory) {
  require(!path || !is_of_run_in(directory, *path), ErrorKind::usage,
          "--{} {}: would be removed with what is in --output; take another one", option,
          path.value_or(""));
}

}  // namespace

void require_apart_from_run(std::string_view option, const std::string& path,
                            const std::string& directory) {
  require(!is_of_run_in(directory, path), ErrorKind::usage,
          "--{} {}: would be written over a file of --output", option, path);
}

void check_output(const Options& options) {
  require(!options.output_dir.empty(), ErrorKind::usage,
          "no directory for the adapter: --output OUTDIR says which");
  std::error_code error;
  require(!fs::is_regular_file(options.output_dir, error), ErrorKind::usage,
          "--output {}: is a file, and a directory is wanted", options.output_dir);
  if (options.grad_out) require_apart_from_run("grad-out", *options.grad_out, options.output_dir);
  require_outside_checkpoints(options.output_dir);
  if (!is_filled(options.output_dir)) return;
  require(is_run(options), ErrorKind::usage,
          "{} is there and was not made by moesaic sft: take another --output", options.output_dir);
  require(options.resume || options.overwrite, ErrorKind::usage,
          "{} is there: --resume goes on with it, --overwrite replaces it", options.output_dir);
  require(!options.lora || !is_within(*options.lora, options.output_dir), ErrorKind::usage,
          "--lora {} would be overwritten: take another --output", *options.lora);
  require_checkpoints(options.output_dir);
  if (!options.overwrite) return;
  require_nothing_else(options.output_dir);
  require_data_outside("data", options.data, options.output_dir);
  require_data_outside("eval-data", options.eval_data, options.output_dir);
}

OutputDirectory::OutputDirectory(const Options& options) : path_(options.output_dir) {
  check_output(options);
  std::error_code error;
  is_new_ = fs::create_directory(path_, error);  // as convert, not where a name is mistyped
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", path_, error.message());
  // Its checkpoints are not to be lost with its name.
  if (is_new_) sync_directory(full_path(path_ + "/..").string());
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // File systems that cannot lock a directory say so.
  const bool is_taken = descriptor_.is_open() &&
                        ::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0 &&
                        errno == EWOULDBLOCK;
  require(!is_taken, ErrorKind::usage, "{}: another process is training into it", path_);
  for (const std::string_view file : kRunFiles) {  // before there is anything to lose
    require_replaceable((fs::path(path_) / file).string());
  }
}

void OutputDirectory::begin(const Options& options, std::int64_t bytes) {
  std::error_code error;
  std::vector<fs::path> old;
  for (const auto& entry : entries_of(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kOptionsFile) continue;  // the directory is a run's until write_options
    if (is_of_a_run(name) && (!options.resume || is_part(name))) old.push_back(entry.path());
  }
  require(!error, ErrorKind::resource, "{}: cannot be read: {}", path_, error.message());
  if (!options.resume && !old.empty()) require_room_without(old, path_, bytes);
  // What may be refused goes first: the adapter is left then.
  std::stable_partition(old.begin(), old.end(), [](const fs::path& path) {
    return names_checkpoint(path.filename().string());
  });
  for (const fs::path& path : old) {
    if (names_checkpoint(path.filename().string())) {
      error = remove_checkpoint(path.string());
    } else {
      fs::remove(path, error);
    }
    require(!error, ErrorKind::resource, "{}: cannot be removed: {}", path.string(),
            error.message());
  }
}

bool OutputDirectory::remove_adapter_of(const std::string& checkpoint) const {
  const fs::path values = fs::path(path_) / kAdapterTensorsFile;
  if (!file_exists(values.string())) return true;
  if (!have_same_bytes(values, fs::path(checkpoint) / kAdapterTensorsFile)) return false;
  for (const std::string_view file : {kAdapterConfigFile, kAdapterTensorsFile}) {
    const fs::path path = fs::path(path_) / file;
    std::error_code error;
    fs::remove(path, error);
    require(!error, ErrorKind::resource, "{}: cannot be removed: {}", path.string(),
            error.message());
  }
  return true;
}

OutputDirectory::~OutputDirectory() {
  if (is_new_) ::rmdir(path_.c_str());  // if there is nothing in it
}

void write_options(const Command& command) {
  Command written = command;  // the next run may begin either way
  written.options.resume = false;
  written.options.overwrite = false;
  for (const char* const how : {"resume", "overwrite"}) {
    set_source(written, how, OptionSource::preset);
  }
  ElsewhereOptions elsewhere;
  if (command.options.lora) elsewhere = {.names = kOfAdapter, .source = "of the adapter"};
  replace_file(options_path(command.options).string(), config_text(written, elsewhere));
}

std::optional<std::string> changed_options(const Command& command,
                                           std::span<const std::string_view> names) {
  std::string text;
  try {
    const Command before = parse_command(
        std::vector<std::string>{"sft", "--config", options_path(command.options).string()}, {});
    for (const std::string_view name : names) {
      if (comes_from_adapter(name, before) || comes_from_adapter(name, command)) continue;
      const OptionRow& row = *find_option(name, Verb::sft);
      const std::string was = value_text(row, before.options);
      const std::string is = value_text(row, command.options);
      if (was == is) continue;
      text += fmt::format("{}--{} {}, not {}", text.empty() ? "" : "; ", name,
                          was.empty() ? "\"\"" : was, is.empty() ? "\"\"" : is);
    }
  } catch (const Error&) {  // it is gone, or of another version
    return std::nullopt;
  }
  return text;
}

}  // namespace moesaic
