#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic::jinja {

enum class TokenKind {
  data,         ///< text outside of tags, with white space already cut
  block_begin,  ///< {%
  block_end,
  variable_begin,  ///< {{
  variable_end,
  name,
  text,  ///< a string; `text` is what it says
  integer,
  real,
  sign,  ///< an operator or bracket
  end,   ///< of the template
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;

  [[nodiscard]] bool is_sign(std::string_view wanted) const {
    return kind == TokenKind::sign && text == wanted;
  }
  [[nodiscard]] bool is_name(std::string_view wanted) const {
    return kind == TokenKind::name && text == wanted;
  }
};

/// The tokens of a template, the last one of kind `end`, in the way of Jinja's lexer with
/// trim_blocks and lstrip_blocks: comments are gone, raw blocks are data. `line` is where it stops,
/// also where it throws Error{file}.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace moesaic::jinja
