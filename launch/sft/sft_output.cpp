#include "launch/sft/sft_output.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "launch/options/option_help.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOptionsFile = "options.ini";

void write_options(const Command& command, const fs::path& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << config_text(command);
  file.close();
  require(!file.fail(), ErrorKind::resource, "cannot write {}", path.string());
}

}  // namespace

void prepare_output(const Command& command) {
  const Options& options = command.options;
  require(!options.output_dir.empty(), ErrorKind::usage,
          "no directory for the adapter: --output OUTDIR says which");
  const fs::path directory(options.output_dir);
  const fs::path marker = directory / kOptionsFile;
  std::error_code error;
  const bool is_there = fs::exists(directory, error) && !fs::is_empty(directory, error);
  if (is_there) {
    require(fs::exists(marker), ErrorKind::usage,
            "{} is there and was not made by moesaic sft: take another --output",
            options.output_dir);
    require(options.resume || options.overwrite, ErrorKind::usage,
            "{} is there: --resume goes on with it, --overwrite replaces it", options.output_dir);
    if (!options.resume) fs::remove_all(directory, error);
  }
  fs::create_directories(directory, error);
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", options.output_dir,
          error.message());
  write_options(command, marker);
}

}  // namespace moesaic
