#include "launch/verbs/result_file.h"

#include <fmt/core.h>

#include "base/checksum.h"
#include "base/error.h"

namespace moesaic {

ResultFile::ResultFile(std::string path, const RunIdentity& identity)
    : file_(std::move(path), {.records = "results", .inputs = "prompts", .option = "--out"},
            identity, [this](const Json& record) { note(record); }) {}

void ResultFile::append(std::string_view line) {
  file_.append(fmt::format("{}\n", line));
}

void ResultFile::require_same(std::int64_t index, const Prompt& prompt) const {
  const auto line = lines_.find(index);
  if (line == lines_.end()) return;
  require(line->second == checksum_text(prompt.checksum), ErrorKind::usage,
          "{}: has results of other prompts: {} was another one; another --out starts anew",
          file_.path(), prompt.where);
}

void ResultFile::note(const Json& record) {
  const std::int64_t index = record.at("index").as_int();
  const auto sample = record.find("sample");
  done_.insert({index, sample ? sample->as_int() : 0});
  if (const auto line = record.find("line")) lines_[index] = line->as_string();
}

}  // namespace moesaic
