#pragma once

#include <optional>
#include <string>

#include "base/output_file.h"
#include "base/progress.h"
#include "launch/job/runtime.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/score_input.h"
#include "src/checkpoint/safetensors_writer.h"

namespace moesaic {

/// The file of --logits-out: input_ids I64 [tokens], logits F32 [tokens, vocab].
class LogitsFile {
 public:
  LogitsFile(const std::string& path, const std::vector<std::int32_t>& tokens, std::int64_t vocab);
  void write(const LogitsRows& rows);
  void finish() { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

/// The file of --logprobs-out: a JSON object a line and token, in their order: document, position,
/// id, piece, logprob, rank. Tokens that are not predicted have null; a context has no lines.
class LogprobsFile {
 public:
  /// `input` must outlive this. Throws Error{resource} if the file cannot be written.
  LogprobsFile(const std::string& path, const ScoreInput& input);
  void write(const TokenScores& scores);
  /// What has been told so far is in the file.
  void flush();

 private:
  void add_line(std::int64_t document, std::int64_t position, const TokenScore* score);

  OutputFile file_;
  const ScoreInput& input_;
  std::int64_t document_ = -1;
  std::int64_t position_ = 0;  // the next one of it
  std::string text_;           // not yet written
  std::int64_t offset_ = 0;
};

/// What rank 0 writes while documents are scored, and at the end.
class ScoreOutput {
 public:
  /// Both must outlive this.
  ScoreOutput(const Runtime& runtime, const ScoreInput& input);

  void take(const TokenScores& scores);
  void take(std::int64_t document, const DocumentScore& score);
  /// Nothing more will come; "3 of 7 texts are scored, 1200 of 4000 tokens".
  [[nodiscard]] std::string end_early();
  void finish(const DocumentScore& total, const RunStatistics& statistics);

 private:
  const Runtime& runtime_;
  const ScoreInput& input_;
  std::optional<LogprobsFile> logprobs_;
  std::optional<Progress> progress_;
  std::int64_t told_documents_ = 0;
  std::int64_t told_tokens_ = 0;
  std::int64_t all_tokens_ = 0;
};

}  // namespace moesaic
