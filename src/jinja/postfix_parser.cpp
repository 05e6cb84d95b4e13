
#include "src/jinja/parser.h"

namespace moesaic::jinja {
namespace {

/// Whether an argument without brackets can begin here, as in "is divisibleby 3".
bool begins_argument(const Token& token) {
  switch (token.kind) {
    case TokenKind::name:
      return token.text != "else" && token.text != "or" && token.text != "and" &&
             token.text != "if" && token.text != "in" && token.text != "not";
    case TokenKind::text:
    case TokenKind::integer:
    case TokenKind::real:
      return true;
    case TokenKind::sign:
      return token.text == "(" || token.text == "[" || token.text == "{";
    default:
      return false;
  }
}

std::string dotted_name(TokenStream& tokens) {
  std::string name = tokens.expect(TokenKind::name, "a name").text;
  while (tokens.skip_sign(".")) name += "." + tokens.expect(TokenKind::name, "a name").text;
  return name;
}

}  // namespace

const Expression* ExpressionParser::postfix(const Expression* node) {
  while (true) {
    if (tokens_.peek().is_sign(".") || tokens_.peek().is_sign("[")) {
      node = subscript(node);
    } else if (tokens_.peek().is_sign("(")) {
      const int line = tokens_.peek().line;
      node = state_.nodes.make<Call>(line, node, call_arguments());
    } else {
      return node;
    }
  }
}

const Expression* ExpressionParser::filters(const Expression* node) {
  while (true) {
    if (tokens_.skip_sign("|")) {
      node = filter(node);
    } else if (tokens_.skip_name("is")) {
      node = test(node);
    } else if (tokens_.peek().is_sign("(")) {
      const int line = tokens_.peek().line;
      node = state_.nodes.make<Call>(line, node, call_arguments());
    } else {
      return node;
    }
  }
}

const Filter* ExpressionParser::filter(const Expression* input) {
  const int line = tokens_.peek().line;
  std::string name = dotted_name(tokens_);
  ArgumentExpressions arguments;
  if (tokens_.peek().is_sign("(")) arguments = call_arguments();
  return state_.nodes.make<Filter>(line, input, std::move(name), std::move(arguments));
}

const Expression* ExpressionParser::test(const Expression* input) {
  const int line = tokens_.peek().line;
  const bool negated = tokens_.skip_name("not");
  std::string name = dotted_name(tokens_);
  ArgumentExpressions arguments;
  if (tokens_.peek().is_sign("(")) {
    arguments = call_arguments();
  } else if (begins_argument(tokens_.peek())) {
    if (tokens_.peek().is_name("is")) refuse("You cannot chain multiple tests with is");
    arguments.positional.push_back(postfix(primary()));
  }
  const Expression* node =
      state_.nodes.make<Test>(line, input, std::move(name), std::move(arguments));
  return negated ? state_.nodes.make<Unary>(line, Sign::negation, node) : node;
}

const Expression* ExpressionParser::subscript(const Expression* object) {
  const int line = tokens_.peek().line;
  if (tokens_.skip_sign(".")) {
    if (tokens_.peek().kind == TokenKind::name) {
      return state_.nodes.make<Attribute>(line, object, tokens_.next().text);
    }
    if (tokens_.peek().kind == TokenKind::integer) {
      return state_.nodes.make<Subscript>(line, object, primary());
    }
    tokens_.unexpected("a name or number");
  }
  tokens_.expect_sign("[");
  const auto ends = [&] { return tokens_.peek().is_sign(":") || tokens_.peek().is_sign("]"); };
  const Expression* start = ends() ? nullptr : expression();
  if (start != nullptr && tokens_.skip_sign("]")) {
    return state_.nodes.make<Subscript>(line, object, start);
  }
  if (start != nullptr && tokens_.peek().is_sign(",")) refuse("a[b, c] is not supported");
  tokens_.expect_sign(":");
  SliceExpression::Bounds bounds{start, nullptr, nullptr};
  if (!ends()) bounds.stop = expression();
  if (tokens_.skip_sign(":") && !ends()) bounds.step = expression();
  tokens_.expect_sign("]");
  return state_.nodes.make<SliceExpression>(line, object, bounds);
}

ArgumentExpressions ExpressionParser::call_arguments() {
  tokens_.expect_sign("(");
  ArgumentExpressions arguments;
  for (bool first = true; !tokens_.skip_sign(")"); first = false) {
    if (!first) {
      tokens_.expect_sign(",");
      if (tokens_.skip_sign(")")) break;
    }
    if (tokens_.skip_sign("**")) {
      if (arguments.dict != nullptr) refuse("a call has several arguments with **");
      arguments.dict = expression();
    } else if (tokens_.skip_sign("*")) {
      if (arguments.list != nullptr) refuse("a call has several arguments with *");
      arguments.list = expression();
    } else if (tokens_.peek().kind == TokenKind::name && tokens_.peek(1).is_sign("=")) {
      std::string name = tokens_.next().text;
      tokens_.next();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      if (!arguments.named.empty()) refuse("invalid syntax for function call expression");
      arguments.positional.push_back(expression());
    }
  }
  return arguments;
}

}  // namespace moesaic::jinja
