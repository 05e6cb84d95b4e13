#include "launch/job/trace_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/directory.h"
#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::string_view kBegin = "rank-";
constexpr std::string_view kEnd = ".jsonl";

bool is_trace_name(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(std::min(kEnd.size(), name.size()));
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void prepare_traces(const Options& options) {
  if (!options.trace_dir) return;
  const std::filesystem::path directory = *options.trace_dir;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, ErrorKind::resource, "--trace-dir: {}: cannot be made: {}", directory.string(),
          error.message());
  std::vector<std::filesystem::path> traces;
  for (const auto& entry : entries_of(directory, error)) {
    if (is_trace_name(entry.path().filename().string())) traces.push_back(entry.path());
  }
  require(!error, ErrorKind::resource, "--trace-dir: {}: cannot be read: {}", directory.string(),
          error.message());
  for (const std::filesystem::path& trace : traces) {
    std::filesystem::remove(trace, error);  // no error where another rank was faster
    require(!error, ErrorKind::resource, "--trace-dir: {}: cannot be removed: {}", trace.string(),
            error.message());
  }
}

std::string trace_file(const Options& options, int rank) {
  if (!options.trace_dir) return "";
  return (std::filesystem::path(*options.trace_dir) / fmt::format("{}{}{}", kBegin, rank, kEnd))
      .string();
}

}  // namespace moesaic
