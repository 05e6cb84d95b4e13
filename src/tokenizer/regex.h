#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/encoded_text.h"

namespace moesaic {

/// A compiled pattern (PCRE2 with Unicode properties, JIT where the CPU has one). Immutable and
/// safe to use from several threads.
class Regex {
 public:
  /// `pattern` is in the syntax of tokenizer.json (regex_syntax.h). Throws Error{file} starting
  /// with `where` if it is not a pattern.
  static Regex compile(std::string_view pattern, const std::string& where);
  /// Matches no part of a text but all of it.
  static Regex compile_whole(std::string_view pattern, const std::string& where);
  /// Matches `text` itself.
  static Regex literal(std::string_view text);

  /// All matches from left to right, none overlapping, in the way of Oniguruma: an empty match is
  /// not taken right behind another match. `text` must be UTF-8.
  [[nodiscard]] std::vector<Span> find_all(std::string_view text) const;
  [[nodiscard]] bool has_match(std::string_view text) const { return !find_all(text).empty(); }

  /// `text` with every match replaced by `content`, which is taken literally.
  [[nodiscard]] std::string replace(std::string_view text, std::string_view content) const;

 private:
  struct Code;
  [[nodiscard]] std::vector<Span> find_literal(std::string_view text) const;
  [[nodiscard]] std::vector<Span> find_pattern(std::string_view text) const;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace moesaic
