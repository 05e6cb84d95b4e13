#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/output_file.h"

namespace moesaic {

/// What results follow from: those of another run do not go into the same file.
struct RunIdentity {
  std::string prompts;  // checksum
  std::string model;    // checksum
  std::string options;  // JSON object: values by name, as texts
};

/// The file of --out (docs/formats.md): a line that tells the identity of the run, then a line a
/// result. A line is written at once and whole; what a run that was killed has left of its last
/// line is dropped by the next, which goes on from there. For one process at a time.
class ResultFile {
 public:
  /// Makes the file, or reads what is in it. Throws Error{usage} if it is no file of results, is of
  /// another identity (the message says in what), or is being written; Error{file} for a line that
  /// is no result; Error{resource} if it cannot be written.
  ResultFile(std::string path, const RunIdentity& identity);

  /// Whether a sample of a prompt is there already.
  [[nodiscard]] bool has(std::int64_t index, std::int64_t sample) const {
    return done_.contains({index, sample});
  }
  /// Writes one result, a JSON object without the end of its line.
  void append(std::string_view line);
  /// Returns when all is on the disk.
  void sync() const { file_.sync(); }

 private:
  void read(const RunIdentity& identity);
  void check_header(std::string_view line, const RunIdentity& identity) const;
  void check_options(const Json& theirs, const RunIdentity& identity) const;
  void note(std::string_view line, std::int64_t number);

  std::string path_;
  OutputFile file_;
  std::int64_t end_ = 0;  // of the last whole line
  std::set<std::pair<std::int64_t, std::int64_t>> done_;
};

}  // namespace moesaic
