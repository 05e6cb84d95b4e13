#pragma once

#include <cstdint>
#include <string>

#include "launch/verbs/record_file.h"
#include "launch/verbs/score_input.h"
#include "src/generate/scorer.h"

namespace moesaic {

/// The file of --logprobs-out (docs/json.md): a record a token, in their order: document,
/// position, id, piece, logprob, rank. Tokens that are not predicted have null; a context has no
/// records.
class LogprobsFile {
 public:
  enum class Known { kept, dropped };  ///< what becomes of records that are there

  /// As RecordFile. What is kept is not scored again: its windows leave `input`, which must outlive
  /// this, and its scores go there. Throws Error{file} also for records of other tokens.
  LogprobsFile(const std::string& path, const RunIdentity& identity, ScoreInput& input,
               Known known);
  /// Writes them all.
  void write(const TokenScores& scores);
  /// All scores of a document are written: tokens after the last one are not predicted.
  void finish(std::int64_t document);
  /// Returns when all is on the disk.
  void sync() const { file_.sync(); }

 private:
  void note(const Json& record);
  void next_document();
  /// The record of the next token.
  [[nodiscard]] std::string line(const TokenScore* score);

  ScoreInput& input_;
  std::int64_t document_ = -1;  // of the next record
  std::int64_t position_ = 0;
  RecordFile file_;
};

}  // namespace moesaic
