#include "launch/job/written_files.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// A file, and the option that names it.
struct NamedFile {
  std::string_view option;
  std::string path;
  bool is_replaced = false;  // whatever it holds; others are looked at before they are written
};

void add(std::string_view option, const std::optional<std::string>& path,
         std::vector<NamedFile>& files, bool is_replaced = false) {
  if (path && *path != "-") files.push_back({option, *path, is_replaced});
}

std::vector<NamedFile> written_files(const Options& options) {
  std::vector<NamedFile> files;
  add("out", options.out, files);
  add("logprobs-out", options.logprobs_out, files);
  add("logits-out", options.logits_out, files, true);
  add("record-load", options.record_load, files, true);
  add("samples-out", options.samples_out, files, true);
  add("grad-out", options.grad_out, files, true);
  return files;
}

std::vector<NamedFile> read_files(const Options& options) {
  std::vector<NamedFile> files;
  add("file", options.file, files);
  for (const std::string& file : options.files) add("file", file, files);
  add("data", options.data, files);
  add("eval-data", options.eval_data, files);
  add("placement", options.placement, files);
  add("expert-load", options.expert_load, files);
  add("chat-template", options.chat_template, files);
  if (!options.config.empty()) add("config", options.config, files);
  return files;
}

/// Also of files that are not there yet.
bool is_same(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  return full_path(a) == full_path(b);
}

/// A file that is there.
bool is_part_of(const std::string& path, const std::string& directory) {
  std::error_code error;
  return !directory.empty() && fs::exists(path, error) && is_within(path, directory);
}

}  // namespace

fs::path full_path(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error);  // alone it may stay relative
}

bool is_within(const std::string& path, const std::string& directory) {
  const fs::path inner = full_path(path);
  const fs::path outer = full_path(directory);
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

void require_apart(const Options& options) {
  const std::vector<NamedFile> written = written_files(options);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const NamedFile& file = written[i];
    const auto refuse_if = [&](bool is_used, std::string_view what) {
      require(!is_used, ErrorKind::usage, "--{} {}: would be written over {}", file.option,
              file.path, what);
    };
    for (const NamedFile& read : read_files(options)) {
      refuse_if(is_same(file.path, read.path), "the file of --" + std::string(read.option));
    }
    refuse_if(file.is_replaced && is_part_of(file.path, options.model), "a file of --model");
    refuse_if(file.is_replaced && options.lora && is_part_of(file.path, *options.lora),
              "a file of --lora");
    for (const NamedFile& other : std::span(written).first(i)) {
      refuse_if(is_same(file.path, other.path), "the file of --" + std::string(other.option));
    }
  }
}

}  // namespace moesaic
