#include "src/generate/score_order.h"

namespace moesaic {
namespace {

void add(DocumentScore& sum, const DocumentScore& part) {
  sum.loss += part.loss;
  sum.predicted_tokens += part.predicted_tokens;
  sum.is_greedy = sum.is_greedy && part.is_greedy;
}

}  // namespace

DocumentScore ScoreOrder::total() const {
  DocumentScore total = total_;
  add(total, document_);
  return total;
}

ScoreOrder::ScoreOrder(std::span<const ScoreDocument> documents, const ScoreEvents& events)
    : documents_(documents), events_(events) {
  if (!documents_.empty()) document_ = documents_.front().known;
}

std::optional<Request> ScoreOrder::next() {
  while (next_document_ < documents_.size() && documents_[next_document_].windows.empty()) {
    ++next_document_;
  }
  if (damage_ || next_document_ == documents_.size()) return std::nullopt;
  const ScoreDocument& document = documents_[next_document_];
  const ScoreWindow& window = document.windows[next_window_];
  Request request;
  request.tokens.assign(document.tokens.begin() + window.begin,
                        document.tokens.begin() + window.end);
  request.logits_from = window.first - window.begin - 1;
  open_.push_back({.document = next_document_, .window = next_window_, .scores = {}});
  if (++next_window_ == document.windows.size()) {
    ++next_document_;
    next_window_ = 0;
  }
  return request;
}

void ScoreOrder::take(RequestId window, const TokenScore& score) {
  if (is_after_damage(window)) return;
  open(window).scores.push_back(score);
}

void ScoreOrder::finish(RequestId window) {
  if (is_after_damage(window)) return;
  open(window).finished = true;
}

void ScoreOrder::damage(RequestId window, std::int64_t token, const std::string& place) {
  const Open& entry = open(window);
  const std::int64_t position = window_of(entry).begin + token;
  const bool is_first = !damage_ || window < damaged_window_ ||
                        (window == damaged_window_ && position < damage_->token);
  if (!is_first) return;
  damaged_window_ = window;
  damage_ = {
      .document = static_cast<std::int64_t>(entry.document), .token = position, .place = place};
}

void ScoreOrder::tell() {
  tell_known();
  while (!open_.empty()) {
    Open& front = open_.front();
    tell_scores(front);
    if (!front.finished || is_after_damage(told_)) return;
    if (front.window + 1 == documents_[front.document].windows.size()) tell_document();
    open_.pop_front();
    ++told_;
    tell_known();
  }
}

void ScoreOrder::tell_document() {
  if (events_.on_document) {
    events_.on_document(static_cast<std::int64_t>(told_documents_), document_);
  }
  add(total_, document_);
  ++told_documents_;
  const bool is_last = told_documents_ == documents_.size();
  document_ = is_last ? DocumentScore{} : documents_[told_documents_].known;
}

void ScoreOrder::tell_known() {
  while (told_documents_ < documents_.size() && documents_[told_documents_].windows.empty()) {
    tell_document();
  }
}

void ScoreOrder::tell_scores(Open& open) {
  if (open.scores.empty()) return;
  const std::int64_t first = window_of(open).first + open.told;
  for (std::size_t i = 0; i < open.scores.size(); ++i) {
    const bool counts = documents_[open.document].counts(first + static_cast<std::int64_t>(i));
    if (counts) document_.add(open.scores[i]);
  }
  if (events_.on_tokens) {
    events_.on_tokens({.document = static_cast<std::int64_t>(open.document),
                       .first = first,
                       .scores = open.scores});
  }
  open.told += std::ssize(open.scores);
  open.scores.clear();
}

}  // namespace moesaic
