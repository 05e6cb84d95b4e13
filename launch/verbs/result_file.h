#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "launch/input/prompts.h"
#include "launch/verbs/record_file.h"

namespace moesaic {

/// The file of --out (docs/json.md): a record a result.
class ResultFile {
 public:
  /// As RecordFile. Throws Error{file} also for a record that is no result.
  ResultFile(std::string path, const RunIdentity& identity);

  /// Whether a sample of a prompt is there already.
  [[nodiscard]] bool has(std::int64_t index, std::int64_t sample) const {
    return done_.contains({index, sample});
  }
  /// Throws Error{usage} if there are results of prompt number `index`, and it was another one: of
  /// prompts that were not known when the file was made.
  void require_same(std::int64_t index, const Prompt& prompt) const;
  /// Writes one result, a JSON object without the end of its line.
  void append(std::string_view line);
  /// Returns when all is on the disk.
  void sync() const { file_.sync(); }

 private:
  void note(const Json& record);

  std::set<std::pair<std::int64_t, std::int64_t>> done_;
  std::map<std::int64_t, std::string>
      lines_;  // checksums of prompts' lines, where results say them
  RecordFile file_;
};

}  // namespace moesaic
