#pragma once

#include <optional>
#include <string>

#include "base/progress.h"
#include "launch/job/runtime.h"
#include "launch/results/run_statistics.h"
#include "launch/verbs/logprobs_file.h"
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

/// What rank 0 writes while documents are scored, and at the end.
class ScoreOutput {
 public:
  /// All must outlive this. Without a file of log-probabilities, `logprobs` is null.
  ScoreOutput(const Runtime& runtime, const ScoreInput& input, LogprobsFile* logprobs);

  void take(const TokenScores& scores);
  void take(std::int64_t document, const DocumentScore& score);
  /// Nothing more will come; "3 of 7 texts are scored, 1200 of 4000 tokens".
  [[nodiscard]] std::string end_early();
  /// All that is to be scored has been. `statistics` are null where nothing was left to do.
  void finish(const DocumentScore& total, const RunStatistics* statistics);

 private:
  const Runtime& runtime_;
  const ScoreInput& input_;
  LogprobsFile* logprobs_;
  std::optional<Progress> progress_;
  std::int64_t told_documents_ = 0;
  std::int64_t told_tokens_ = 0;  // and known ones
  std::int64_t all_tokens_ = 0;
};

}  // namespace moesaic
