#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/output_file.h"

namespace moesaic {

/// What records follow from: those of another run do not go into the same file.
struct RunIdentity {
  std::string inputs;   // checksum of prompts or texts
  std::string model;    // checksum
  std::string options;  // JSON object: values by name, as texts
};

/// What a file of records is called.
struct RecordKind {
  std::string_view records;  // "results"
  std::string_view inputs;   // what they are made of: "prompts"
  std::string_view option;   // that names the file: "--out"
};

/// A file of JSON objects, one a line (docs/json.md): the first tells the identity of the run,
/// each other one is a record. Lines are written at once and whole; what a run that was killed has
/// left of its last line is dropped by the next, which goes on from there. For one process at a
/// time.
class RecordFile {
 public:
  enum class Others { refused, replaced };  ///< what becomes of a file of another run

  /// Makes the file, or shows `read` the records that are in it. Throws Error{usage} if it is no
  /// file of such records, is of another identity (the message says in what), or is being written;
  /// Error{file} for a line that is not JSON, and if it cannot be read: nothing of it is changed
  /// then; Error{resource} if it cannot be written. A file of another run that is replaced is no
  /// error, nor is one with other lines: `read` may have been shown records in vain then.
  RecordFile(std::string path, const RecordKind& kind, const RunIdentity& identity,
             const std::function<void(const Json& record)>& read, Others others = Others::refused);

  /// Writes one record or several, with the end of a line after each.
  void append(std::string_view lines);
  /// Takes all records away.
  void clear();
  /// Returns when all is on the disk.
  void sync() const { file_.sync(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool has_records() const noexcept { return end_ > begin_; }

 private:
  void read_records(std::istream& stream, const RunIdentity& identity,
                    const std::function<void(const Json& record)>& read);
  [[nodiscard]] std::string header_of(const RunIdentity& identity) const;
  void check_header(std::string_view line, const RunIdentity& identity) const;
  void check_options(const Json& theirs, const RunIdentity& identity) const;

  std::string path_;
  RecordKind kind_;
  OutputFile file_;
  std::int64_t begin_ = 0;  // of the records
  std::int64_t end_ = 0;    // of the last whole line
};

}  // namespace moesaic
