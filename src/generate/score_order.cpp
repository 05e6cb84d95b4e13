#include "src/generate/score_order.h"

#include <utility>

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

std::optional<Request> ScoreOrder::next() {
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
  if (damage_ && window >= damaged_window_) return;  // what comes after means nothing
  open(window).scores.push_back(score);
}

void ScoreOrder::finish(RequestId window) {
  if (damage_ && window >= damaged_window_) return;
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
  while (!open_.empty()) {
    Open& front = open_.front();
    tell_scores(front);
    if (!front.finished) return;
    if (front.window + 1 == documents_[front.document].windows.size()) {
      if (events_.on_document) {
        events_.on_document(static_cast<std::int64_t>(front.document), document_);
      }
      add(total_, std::exchange(document_, {}));
    }
    open_.pop_front();
    ++told_;
  }
}

void ScoreOrder::tell_scores(Open& open) {
  if (open.scores.empty()) return;
  for (const TokenScore& score : open.scores) {
    document_.loss -= score.log_probability;
    document_.is_greedy = document_.is_greedy && score.rank == 1;
  }
  document_.predicted_tokens += std::ssize(open.scores);
  if (events_.on_tokens) {
    events_.on_tokens({.document = static_cast<std::int64_t>(open.document),
                       .first = window_of(open).first + open.told,
                       .scores = open.scores});
  }
  open.told += std::ssize(open.scores);
  open.scores.clear();
}

}  // namespace moesaic
