#include <fmt/format.h>

#include <array>
#include <charconv>

#include "src/jinja/parser.h"

namespace moesaic::jinja {
namespace {

struct ArithmeticSign {
  std::string_view sign;
  Operation operation;
};

constexpr std::array kRelations = {
    std::pair{std::string_view("=="), Relation::equal},
    std::pair{std::string_view("!="), Relation::unequal},
    std::pair{std::string_view("<"), Relation::less},
    std::pair{std::string_view("<="), Relation::less_equal},
    std::pair{std::string_view(">"), Relation::greater},
    std::pair{std::string_view(">="), Relation::greater_equal},
};

/// The relation that is next, passed.
std::optional<Relation> take_relation(TokenStream& tokens) {
  for (const auto& [sign, relation] : kRelations) {
    if (tokens.skip_sign(sign)) return relation;
  }
  if (tokens.skip_name("in")) return Relation::in;
  if (tokens.peek().is_name("not") && tokens.peek(1).is_name("in")) {
    tokens.next();
    tokens.next();
    return Relation::not_in;
  }
  return std::nullopt;
}

}  // namespace

const Expression* ExpressionParser::expression(bool with_condition) {
  const ParserState::Deeper deeper(state_);
  return with_condition ? conditional() : disjunction();
}

const Expression* ExpressionParser::conditional() {
  const int line = tokens_.peek().line;
  const Expression* node = disjunction();
  while (tokens_.skip_name("if")) {
    const Expression* condition = disjunction();
    const Expression* otherwise = nullptr;
    if (tokens_.skip_name("else")) otherwise = expression();
    node = state_.nodes.make<Conditional>(line, condition, node, otherwise);
  }
  return node;
}

const Expression* ExpressionParser::disjunction() {
  const Expression* left = conjunction();
  while (tokens_.skip_name("or")) {
    left = state_.nodes.make<Logical>(left->line(), false, left, conjunction());
  }
  return left;
}

const Expression* ExpressionParser::conjunction() {
  const Expression* left = negation();
  while (tokens_.skip_name("and")) {
    left = state_.nodes.make<Logical>(left->line(), true, left, negation());
  }
  return left;
}

const Expression* ExpressionParser::negation() {
  const ParserState::Deeper deeper(state_);
  const int line = tokens_.peek().line;
  if (!tokens_.skip_name("not")) return comparison();
  return state_.nodes.make<Unary>(line, Sign::negation, negation());
}

const Expression* ExpressionParser::comparison() {
  const Expression* first = sum();
  Comparison::Links links;
  while (const auto relation = take_relation(tokens_)) links.emplace_back(*relation, sum());
  if (links.empty()) return first;
  return state_.nodes.make<Comparison>(first->line(), first, std::move(links));
}

const Expression* ExpressionParser::sum() {
  const Expression* left = concatenation();
  while (true) {
    const bool adds = tokens_.skip_sign("+");
    if (!adds && !tokens_.skip_sign("-")) return left;
    left = state_.nodes.make<Arithmetic>(left->line(), adds ? Operation::add : Operation::subtract,
                                         left, concatenation());
  }
}

const Expression* ExpressionParser::concatenation() {
  ExpressionList parts{product()};
  while (tokens_.skip_sign("~")) parts.push_back(product());
  if (parts.size() == 1) return parts[0];
  return state_.nodes.make<Concatenation>(parts[0]->line(), std::move(parts));
}

const Expression* ExpressionParser::product() {
  constexpr std::array kSigns = {
      ArithmeticSign{"*", Operation::multiply}, ArithmeticSign{"/", Operation::divide},
      ArithmeticSign{"//", Operation::floor_divide}, ArithmeticSign{"%", Operation::modulo}};
  const Expression* left = power();
  while (true) {
    const auto* const found = std::find_if(kSigns.begin(), kSigns.end(), [&](const auto& entry) {
      return tokens_.skip_sign(entry.sign);
    });
    if (found == kSigns.end()) return left;
    left = state_.nodes.make<Arithmetic>(left->line(), found->operation, left, power());
  }
}

const Expression* ExpressionParser::power() {
  const Expression* left = unary();
  while (tokens_.skip_sign("**")) {
    left = state_.nodes.make<Arithmetic>(left->line(), Operation::power, left, unary());
  }
  return left;
}

const Expression* ExpressionParser::unary(bool with_filter) {
  const ParserState::Deeper deeper(state_);
  const int line = tokens_.peek().line;
  const Expression* node = nullptr;
  if (tokens_.skip_sign("-")) {
    node = state_.nodes.make<Unary>(line, Sign::minus, unary(false));
  } else if (tokens_.skip_sign("+")) {
    node = state_.nodes.make<Unary>(line, Sign::plus, unary(false));
  } else {
    node = primary();
  }
  node = postfix(node);
  return with_filter ? filters(node) : node;
}

const Expression* ExpressionParser::named(const Token& token) {
  const std::string& name = token.text;
  const auto literal = [&](Value value) {
    return state_.nodes.make<Literal>(token.line, std::move(value));
  };
  if (name == "true" || name == "True") return literal(Value(true));
  if (name == "false" || name == "False") return literal(Value(false));
  if (name == "none" || name == "None") return literal(Value());
  state_.note(name, FirstUse::reads);
  return state_.nodes.make<Name>(token.line, name);
}

const Expression* ExpressionParser::primary() {
  const ParserState::Deeper deeper(state_);
  const Token& token = tokens_.peek();
  const auto literal = [&](Value value) {
    return state_.nodes.make<Literal>(token.line, std::move(value));
  };
  switch (token.kind) {
    case TokenKind::name:
      return named(tokens_.next());
    case TokenKind::text: {
      std::string text;
      while (tokens_.peek().kind == TokenKind::text) text += tokens_.next().text;
      return literal(Value(std::move(text)));
    }
    case TokenKind::integer: {
      std::int64_t value = 0;
      const std::string& digits = tokens_.next().text;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec != std::errc()) refuse("{} does not fit into 64 bits", digits);
      return literal(Value(value));
    }
    case TokenKind::real:
      return literal(Value(std::strtod(tokens_.next().text.c_str(), nullptr)));
    case TokenKind::sign:
      if (token.text == "(") return parenthesised();
      if (token.text == "[") return list_display();
      if (token.text == "{") return dict_display();
      [[fallthrough]];
    default:
      tokens_.unexpected("an expression");
  }
}

bool ExpressionParser::at_tuple_end() const {
  const Token& token = tokens_.peek();
  return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end ||
         token.is_sign(")") || token.is_name("recursive");
}

const Expression* ExpressionParser::tuple(bool with_condition) {
  const int line = tokens_.peek().line;
  ExpressionList items{expression(with_condition)};
  bool is_tuple = false;
  while (tokens_.skip_sign(",")) {
    is_tuple = true;
    if (at_tuple_end()) break;
    items.push_back(expression(with_condition));
  }
  if (!is_tuple) return items[0];
  return state_.nodes.make<Display>(line, SequenceKind::tuple, std::move(items));
}

const Expression* ExpressionParser::parenthesised() {
  const int line = tokens_.next().line;
  if (tokens_.skip_sign(")")) {
    return state_.nodes.make<Display>(line, SequenceKind::tuple, ExpressionList());
  }
  const Expression* inner = tuple();
  tokens_.expect_sign(")");
  return inner;
}

const Expression* ExpressionParser::list_display() {
  const int line = tokens_.next().line;
  ExpressionList items;
  while (!tokens_.skip_sign("]")) {
    if (!items.empty()) {
      tokens_.expect_sign(",");
      if (tokens_.skip_sign("]")) break;
    }
    items.push_back(expression());
  }
  return state_.nodes.make<Display>(line, SequenceKind::list, std::move(items));
}

const Expression* ExpressionParser::dict_display() {
  const int line = tokens_.next().line;
  DictDisplay::Entries entries;
  while (!tokens_.skip_sign("}")) {
    if (!entries.empty()) {
      tokens_.expect_sign(",");
      if (tokens_.skip_sign("}")) break;
    }
    const Expression* key = expression();
    tokens_.expect_sign(":");
    entries.emplace_back(key, expression());
  }
  return state_.nodes.make<DictDisplay>(line, std::move(entries));
}

}  // namespace moesaic::jinja
