#include "launch/sft/adapter_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/error.h"
#include "src/checkpoint/safetensors.h"
#include "src/lora/adapter_files.h"
#include "src/train/train_state.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// What is there in part is not gone: to read it tells what is wrong.
bool has_nothing(const fs::path& directory) {
  return std::ranges::all_of(
      std::array{kAdapterConfigFile, kAdapterTensorsFile}, [&](std::string_view file) {
        std::error_code error;
        return fs::status(directory / file, error).type() == fs::file_type::not_found;
      });
}

/// Whether the adapter of a run's checkpoint can be read, as that of a damaged one may not be.
bool is_readable(const fs::path& checkpoint) {
  if (!has_train_state(checkpoint.string())) return false;
  try {
    (void)Json::read_file((checkpoint / kAdapterConfigFile).string());
    (void)SafetensorsFile::open((checkpoint / kAdapterTensorsFile).string());
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<std::string> adapter_source(const Options& options) {
  if (!options.lora || !options.resume || !has_nothing(*options.lora)) return options.lora;
  std::pair<std::int64_t, std::string> newest = {-1, *options.lora};
  std::error_code error;
  for (const auto& entry : entries_of(options.output_dir, error)) {
    const auto steps = checkpoint_steps(entry.path().filename().string());
    if (!steps || *steps <= newest.first || !is_readable(entry.path())) continue;
    newest = {*steps, entry.path().string()};
  }
  return newest.second;
}

}  // namespace moesaic
