#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "src/generate/scorer.h"

namespace moesaic {

/// Rank 0's windows as requests, and their scores, which may come in any order of the windows, in
/// the order of the text.
class ScoreOrder {
 public:
  /// Both must outlive this.
  ScoreOrder(std::span<const ScoreDocument> documents, const ScoreEvents& events);

  /// The next window; none when there are no more.
  [[nodiscard]] std::optional<Request> next();
  /// The score of a window's next token that counts.
  void take(RequestId window, const TokenScore& score);
  /// All scores of a window have come.
  void finish(RequestId window);
  /// Token `token` of a window, counted in it, is damaged: no later one is wanted any more.
  void damage(RequestId window, std::int64_t token, const std::string& place);
  /// Tells what is complete up to here.
  void tell();

  [[nodiscard]] RequestId num_requests() const noexcept { return told_ + std::ssize(open_); }
  [[nodiscard]] bool is_damaged() const noexcept { return damage_.has_value(); }
  /// The window of the first damaged token.
  [[nodiscard]] RequestId damaged_window() const noexcept { return damaged_window_; }
  [[nodiscard]] const std::optional<ScoreDamage>& found_damage() const noexcept { return damage_; }
  /// Over all tokens that were told, and those that are known before them.
  [[nodiscard]] DocumentScore total() const;

 private:
  struct Open {
    std::size_t document = 0;
    std::size_t window = 0;
    std::vector<TokenScore> scores;  // not yet told
    std::int64_t told = 0;
    bool finished = false;
  };
  /// Whether it is the damaged window or a later one, of which nothing more means anything.
  [[nodiscard]] bool is_after_damage(RequestId window) const {
    return damage_ && window >= damaged_window_;
  }
  [[nodiscard]] Open& open(RequestId window) {
    return open_[static_cast<std::size_t>(window - told_)];
  }
  [[nodiscard]] const ScoreWindow& window_of(const Open& open) const {
    return documents_[open.document].windows[open.window];
  }
  void tell_scores(Open& open);
  void tell_document();
  /// Tells documents that are known, up to the next one that is not.
  void tell_known();

  std::span<const ScoreDocument> documents_;
  const ScoreEvents& events_;
  std::size_t next_document_ = 0;
  std::size_t next_window_ = 0;
  RequestId told_ = 0;     // windows before it are told
  std::deque<Open> open_;  // windows from told_ on
  std::size_t told_documents_ = 0;
  DocumentScore document_;  // the one that is being told
  DocumentScore total_;
  std::optional<ScoreDamage> damage_;
  RequestId damaged_window_ = 0;
};

}  // namespace moesaic
