#include "launch/verbs/score_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

/// "loss 2.123456  perplexity 8.3591  over 1404 tokens"
std::string score_text(const DocumentScore& score) {
  const double perplexity = std::exp(score.mean_loss());
  const std::string number =
      std::isfinite(perplexity) ? fmt::format("{:.4f}", perplexity) : "above 1e308";
  return fmt::format("loss {:.6f}  perplexity {}  over {}", score.mean_loss(), number,
                     counted(score.predicted_tokens, "token"));
}

std::string pair_text(const DocumentScore& score) {
  return fmt::format("log-likelihood {:.6f}  {}  over {}", -score.loss,
                     score.is_greedy ? "greedy" : "not greedy",
                     counted(score.predicted_tokens, "token"));
}

void add_fields(JsonWriter& out, const DocumentScore& score) {
  out.field("log_likelihood", 0.0 - score.loss)
      .field("loss", score.mean_loss())
      .field("perplexity", std::exp(score.mean_loss()))
      .field("predicted_tokens", score.predicted_tokens);
}

std::string document_json(const ScoreInput& input, std::int64_t index, const DocumentScore& score) {
  const ScoreLabel& label = input.labels[static_cast<std::size_t>(index)];
  JsonWriter out;
  out.field("index", index);
  if (!label.id.empty()) out.raw_field("id", label.id);
  out.field("source", label.where);
  add_fields(out, score);
  if (label.is_pair) {
    out.field("is_greedy", score.is_greedy);
  } else {
    out.field("windows", label.windows);
  }
  return out.text();
}

std::int64_t known_tokens(const ScoreInput& input) {
  std::int64_t sum = 0;
  for (const ScoreDocument& document : input.documents) sum += document.known.predicted_tokens;
  return sum;
}

std::int64_t predicted_tokens(const ScoreInput& input) {
  std::int64_t sum = known_tokens(input);
  for (const ScoreDocument& document : input.documents) {
    for (const ScoreWindow& window : document.windows) sum += window.end - window.first;
  }
  return sum;
}

}  // namespace

LogitsFile::LogitsFile(const std::string& path, const std::vector<std::int32_t>& tokens,
                       std::int64_t vocab)
    : writer_(path, {{.name = "input_ids",
                      .dtype = DType::i64,
                      .shape = {static_cast<std::int64_t>(tokens.size())}},
                     {.name = "logits",
                      .dtype = DType::f32,
                      .shape = {static_cast<std::int64_t>(tokens.size()), vocab}}}) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  writer_.write("input_ids", 0, std::as_bytes(std::span(ids)));
}

void LogitsFile::write(const LogitsRows& rows) {
  for (std::int64_t row = 0; row < rows.logits.rows(); ++row) {
    const auto bytes = std::as_bytes(rows.logits.row(row));
    writer_.write("logits", (rows.first + row) * static_cast<std::int64_t>(bytes.size()), bytes);
  }
}

ScoreOutput::ScoreOutput(const Runtime& runtime, const ScoreInput& input, LogprobsFile* logprobs)
    : runtime_(runtime),
      input_(input),
      logprobs_(logprobs),
      told_tokens_(known_tokens(input)),
      all_tokens_(predicted_tokens(input)) {}

void ScoreOutput::take(const TokenScores& scores) {
  if (!progress_) {  // not before the model is loaded, which has a bar of its own
    const bool lines_are_seen = isatty(STDOUT_FILENO) != 0 && input_.documents.size() > 1;
    progress_.emplace("tokens", lines_are_seen || !runtime_.log().enabled(LogLevel::info),
                      [](std::int64_t count) { return fmt::format("{}", count); });
  }
  if (logprobs_ != nullptr) logprobs_->write(scores);
  progress_->update(told_tokens_ += std::ssize(scores.scores), all_tokens_);
}

void ScoreOutput::take(std::int64_t document, const DocumentScore& score) {
  if (++told_documents_ == std::ssize(input_.documents)) progress_.reset();
  if (logprobs_ != nullptr) logprobs_->finish(document);
  const ScoreLabel& label = input_.labels[static_cast<std::size_t>(document)];
  if (runtime_.options().json) {
    fmt::print("{}\n", document_json(input_, document, score));
  } else {
    const bool is_alone = input_.documents.size() == 1;
    fmt::print("{}{}\n", is_alone ? "" : label.where + ": ",
               label.is_pair ? pair_text(score) : score_text(score));
  }
  flush_output();
}

std::string ScoreOutput::end_early() {
  progress_.reset();
  if (logprobs_ != nullptr) logprobs_->sync();
  return fmt::format("{} of {} texts are scored, {} of {} tokens", told_documents_,
                     input_.documents.size(), told_tokens_, all_tokens_);
}

void ScoreOutput::finish(const DocumentScore& total, const RunStatistics* statistics) {
  if (logprobs_ != nullptr) logprobs_->sync();
  if (runtime_.options().json) {
    JsonWriter sums;
    sums.field("documents", told_documents_);
    if (total.predicted_tokens > 0) add_fields(sums, total);
    JsonWriter line;
    line.raw_field("total", sums.text());
    if (statistics != nullptr) {
      line.raw_field("statistics", statistics_json(*statistics, runtime_));
    }
    fmt::print("{}\n", line.text());
    return;
  }
  if (told_documents_ < std::ssize(input_.documents)) {
    if (total.predicted_tokens > 0) fmt::print("so far: {}\n", score_text(total));
  } else if (told_documents_ > 1) {
    fmt::print("all {}: {}\n", told_documents_, score_text(total));
  }
  if (statistics == nullptr) return;
  runtime_.log().once(LogLevel::info, "\n{}", statistics_text(*statistics));
}

}  // namespace moesaic
