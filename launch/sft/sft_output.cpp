#include "launch/sft/sft_output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/output_file.h"
#include "launch/options/option_help.h"
#include "launch/options/option_table.h"

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

}  // namespace

void check_output(const Options& options) {
  require(!options.output_dir.empty(), ErrorKind::usage,
          "no directory for the adapter: --output OUTDIR says which");
  if (!is_filled(options.output_dir)) return;
  require(fs::exists(options_path(options)), ErrorKind::usage,
          "{} is there and was not made by moesaic sft: take another --output", options.output_dir);
  require(options.resume || options.overwrite, ErrorKind::usage,
          "{} is there: --resume goes on with it, --overwrite replaces it", options.output_dir);
}

OutputDirectory::OutputDirectory(const Options& options) {
  const std::string& path = options.output_dir;
  check_output(options);
  std::error_code error;
  fs::create_directories(path, error);
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", path, error.message());
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // File systems that cannot lock a directory say so.
  const bool is_taken =
      descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (is_taken) ::close(descriptor_);
  require(!is_taken, ErrorKind::usage, "{}: another process is training into it", path);
  if (options.resume) return;
  for (const auto& entry : fs::directory_iterator(path, error)) fs::remove_all(entry, error);
}

OutputDirectory::~OutputDirectory() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void write_options(const Command& command) {
  replace_file(options_path(command.options).string(), config_text(command));
}

std::string changed_options(const Command& command, std::span<const std::string_view> names) {
  std::string text;
  try {
    const Command before = parse_command(
        std::vector<std::string>{"sft", "--config", options_path(command.options).string()}, {});
    for (const std::string_view name : names) {
      const OptionRow& row = *find_option(name, Verb::sft);
      const std::string was = value_text(row, before.options);
      const std::string is = value_text(row, command.options);
      if (was == is) continue;
      text += fmt::format("{}--{} {}, not {}", text.empty() ? "" : "; ", name,
                          was.empty() ? "\"\"" : was, is.empty() ? "\"\"" : is);
    }
  } catch (const Error&) {  // it is gone, or of another version: then nobody knows
  }
  return text;
}

}  // namespace moesaic
