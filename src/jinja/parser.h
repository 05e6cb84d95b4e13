#pragma once

#include <string_view>
#include <vector>

#include "src/jinja/expressions.h"
#include "src/jinja/lexer.h"
#include "src/jinja/statements.h"

namespace moesaic::jinja {

/// The tokens of a template, one after another.
class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {}

  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  /// The token, passed.
  const Token& next();
  /// Passes the sign or name if it is next.
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  /// Passes it; throws if something else is next.
  void expect_sign(std::string_view sign);
  const Token& expect(TokenKind kind, std::string_view what);
  /// Throws: not what was expected.
  [[noreturn]] void unexpected(std::string_view expected) const;

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int& line_;  // of the next token, for messages
};

/// What parsers share.
struct ParserState {
  TokenStream& tokens;
  NodeStore& nodes;
  int depth = 0;
  std::vector<GivenNames> macros;  ///< that are being parsed, each inside of the one before

  /// Tells the macros that a variable is read or set.
  void note(std::string_view name, FirstUse use) {
    for (GivenNames& given : macros) given.note(name, use);
  }

  /// One level deeper while it lives; throws if that is too deep.
  class Deeper {
   public:
    explicit Deeper(ParserState& state);
    ~Deeper() { --state_.depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ParserState& state_;
  };
};

/// Jinja's expressions.
class ExpressionParser {
 public:
  explicit ExpressionParser(ParserState& state) : state_(state), tokens_(state.tokens) {}

  const Expression* expression(bool with_condition = true);
  /// An expression, or several with commas, which make a tuple.
  const Expression* tuple(bool with_condition = true);
  /// "| name(...)" and so on behind `input`; nullptr for the filters of a block.
  const Filter* filter(const Expression* input);
  const Expression* primary();
  const Expression* postfix(const Expression* node);
  ArgumentExpressions call_arguments();

 private:
  const Expression* conditional();
  const Expression* disjunction();
  const Expression* conjunction();
  const Expression* negation();
  const Expression* comparison();
  const Expression* sum();
  const Expression* concatenation();
  const Expression* product();
  const Expression* power();
  const Expression* unary(bool with_filter = true);
  const Expression* parenthesised();
  const Expression* list_display();
  const Expression* dict_display();
  const Expression* filters(const Expression* node);
  const Expression* test(const Expression* input);
  const Expression* subscript(const Expression* object);
  const Expression* named(const Token& token);
  [[nodiscard]] bool at_tuple_end() const;

  ParserState& state_;
  TokenStream& tokens_;
};

/// Parses a whole template. Throws Error{file} for what is wrong or not supported; `line` is then
/// where.
struct ParsedTemplate {
  NodeStore nodes;
  Body body;
  bool has_generation = false;
};
[[nodiscard]] ParsedTemplate parse_template(std::string_view source, int& line);

}  // namespace moesaic::jinja
