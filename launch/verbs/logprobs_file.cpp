#include "launch/verbs/logprobs_file.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

/// `document` without what is known of it: the tokens before `position`.
void drop_known_windows(ScoreDocument& document, std::int64_t position) {
  std::erase_if(document.windows,
                [&](const ScoreWindow& window) { return window.end <= position; });
  if (document.windows.empty()) return;
  ScoreWindow& window = document.windows.front();
  window.first = std::max(window.first, position);
}

}  // namespace

LogprobsFile::LogprobsFile(const std::string& path, const RunIdentity& identity, ScoreInput& input,
                           Known known)
    : input_(input),
      file_(path, {.records = "logprobs", .inputs = "texts", .option = "--logprobs-out"}, identity,
            [this](const Json& record) { note(record); }) {
  if (known == Known::dropped) {
    file_.clear();
    for (ScoreDocument& document : input_.documents) document.known = {};
    document_ = -1;
  }
  for (std::int64_t i = 0; i <= document_; ++i) {
    ScoreDocument& document = input_.documents[static_cast<std::size_t>(i)];
    drop_known_windows(document, i < document_ ? std::ssize(document.tokens) : position_);
  }
}

void LogprobsFile::note(const Json& record) {
  const auto is_whole = [&] {
    return document_ < 0 ||
           position_ == std::ssize(input_.documents[static_cast<std::size_t>(document_)].tokens);
  };
  while (is_whole() && document_ + 1 < std::ssize(input_.documents)) next_document();
  require(!is_whole(), ErrorKind::file, "{}: is beyond the last token of the texts",
          record.where());
  ScoreDocument& document = input_.documents[static_cast<std::size_t>(document_)];
  const bool is_next =
      record.at("document").as_int() == document_ && record.at("position").as_int() == position_ &&
      record.at("id").as_int() == document.tokens[static_cast<std::size_t>(position_)];
  require(is_next, ErrorKind::file, "{}: is not of document {}, position {}, which is next",
          record.where(), document_, position_);
  const bool counts = document.counts(position_++);
  if (!counts || !record.contains("logprob")) return;
  document.known.add(
      {.log_probability = record.at("logprob").as_double(), .rank = record.at("rank").as_int()});
}

void LogprobsFile::next_document() {
  const auto index = static_cast<std::size_t>(++document_);
  position_ = input_.labels[index].is_pair ? input_.documents[index].windows.front().first : 0;
}

void LogprobsFile::write(const TokenScores& scores) {
  while (document_ < scores.document) next_document();
  std::string text;
  while (position_ < scores.first) text += line(nullptr);
  for (const TokenScore& score : scores.scores) text += line(&score);
  file_.append(text);
}

void LogprobsFile::finish(std::int64_t document) {
  while (document_ < document) next_document();
  if (document_ > document) return;  // the file had it
  const auto end = std::ssize(input_.documents[static_cast<std::size_t>(document)].tokens);
  std::string text;
  while (position_ < end) text += line(nullptr);
  if (!text.empty()) file_.append(text);
}

std::string LogprobsFile::line(const TokenScore* score) {
  const std::int32_t id = input_.documents[static_cast<std::size_t>(document_)]
                              .tokens[static_cast<std::size_t>(position_)];
  JsonWriter line;
  line.field("document", document_)
      .field("position", position_++)
      .field("id", id)
      .field("piece", input_.tokenizer->token(id));
  if (score == nullptr) {
    line.raw_field("logprob", "null").raw_field("rank", "null");
  } else {
    line.field("logprob", score->log_probability).field("rank", score->rank);
  }
  return line.text() + "\n";
}

}  // namespace moesaic
