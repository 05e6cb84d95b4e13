#include <fmt/format.h>

#include <algorithm>

#include "src/jinja/parser.h"

namespace moesaic::jinja {
namespace {

/// Nested deeper than this is no template.
constexpr int kMaxNesting = 200;

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::variable_end:
      return "end of print statement";
    case TokenKind::end:
      return "end of template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

class StatementParser {
 public:
  StatementParser(ParsedTemplate& parsed, TokenStream& tokens)
      : parsed_(parsed),
        tokens_(tokens),
        state_{tokens, parsed.nodes, 0, {}},
        expressions_(state_) {}

  /// Statements up to a tag whose name is one of `ends`, which is passed, or up to the end of the
  /// template if there are none.
  Body body(std::initializer_list<std::string_view> ends, std::string* found = nullptr) {
    const ParserState::Deeper deeper(state_);
    Body statements;
    while (tokens_.peek().kind != TokenKind::end) {
      const Token& token = tokens_.next();
      if (token.kind == TokenKind::data) {
        statements.push_back(parsed_.nodes.make<Data>(token.line, token.text));
      } else if (token.kind == TokenKind::variable_begin) {
        statements.push_back(parsed_.nodes.make<Print>(token.line, expressions_.tuple()));
        tokens_.expect(TokenKind::variable_end, "'}}'");
      } else {
        const Token& name = tokens_.expect(TokenKind::name, "the name of a tag");
        if (std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
          if (found != nullptr) *found = name.text;
          return statements;
        }
        if (const Statement* made = statement(name)) statements.push_back(made);
      }
    }
    if (ends.size() > 0) tokens_.unexpected(fmt::format("'{}'", *(ends.end() - 1)));
    return statements;
  }

 private:
  void end_tag() { tokens_.expect(TokenKind::block_end, "'%}'"); }

  Body closed_body(std::initializer_list<std::string_view> ends) {
    Body statements = body(ends);
    end_tag();
    return statements;
  }

  const Statement* statement(const Token& name) {
    const int line = name.line;
    const std::string& tag = name.text;
    if (tag == "if") return if_block(line);
    if (tag == "for") return for_block(line);
    if (tag == "set") return set_block(line);
    if (tag == "macro") return macro(line);
    if (tag == "call") return call_block(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "with") return with_block(line);
    if (tag == "generation") return generation(line);
    if (tag == "break" || tag == "continue") return jump(line, tag);
    refuse("unknown tag '{}'", tag);
  }

  const Statement* if_block(int line) {
    If::Branches branches;
    const Expression* condition = expressions_.tuple(false);
    std::string end;
    while (true) {
      end_tag();
      Body part = body({"elif", "else", "endif"}, &end);
      branches.emplace_back(condition, std::move(part));
      if (end == "endif") break;
      if (condition == nullptr) refuse("'{}' behind else", end);
      condition = end == "elif" ? expressions_.tuple(false) : nullptr;
    }
    end_tag();
    return parsed_.nodes.make<If>(line, std::move(branches));
  }

  const Statement* for_block(int line) {
    For::Parts parts;
    parts.target = targets("in");
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    parts.items = expressions_.tuple(false);
    if (tokens_.skip_name("if")) parts.condition = expressions_.expression();
    if (tokens_.peek().is_name("recursive")) refuse("recursive loops are not supported");
    end_tag();
    std::string end;
    ++loops_;
    parts.body = body({"else", "endfor"}, &end);
    --loops_;
    end_tag();
    if (end == "else") parts.otherwise = closed_body({"endfor"});
    return parsed_.nodes.make<For>(line, std::move(parts));
  }

  /// A name, a member of a namespace, or several in brackets.
  Target target() {
    const ParserState::Deeper deeper(state_);
    Target made;
    if (tokens_.skip_sign("(")) {
      made = targets("");
      tokens_.expect_sign(")");
      return made;
    }
    made.name = tokens_.expect(TokenKind::name, "a variable").text;
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), made.name) != std::end(kReserved)) {
      refuse("cannot assign to '{}'", made.name);
    }
    if (tokens_.skip_sign(".")) {
      made.member = tokens_.expect(TokenKind::name, "a member").text;
    } else {
      state_.note(made.name, FirstUse::sets);
    }
    return made;
  }

  /// Targets with commas between them, up to the name `end` or what can be none.
  Target targets(std::string_view end) {
    Target first = target();
    if (!tokens_.peek().is_sign(",")) return first;
    Target all;
    all.several.push_back(std::move(first));
    while (tokens_.skip_sign(",")) {
      const Token& token = tokens_.peek();
      if (token.is_name(end) || (token.kind != TokenKind::name && !token.is_sign("("))) break;
      all.several.push_back(target());
    }
    return all;
  }

  const Statement* set_block(int line) {
    Target made = targets("");
    if (tokens_.skip_sign("=")) {
      const Expression* value = expressions_.tuple();
      end_tag();
      return parsed_.nodes.make<Set>(line, std::move(made), value);
    }
    std::vector<const Filter*> filters = block_filters(false);
    end_tag();
    Body content = closed_body({"endset"});
    return parsed_.nodes.make<CaptureBlock>(line, std::vector<Target>{std::move(made)},
                                            std::move(filters), std::move(content));
  }

  /// "| a | b(c)"; the first bar may be missing.
  std::vector<const Filter*> block_filters(bool first_is_bare) {
    std::vector<const Filter*> filters;
    if (first_is_bare) filters.push_back(expressions_.filter(nullptr));
    while (tokens_.skip_sign("|")) filters.push_back(expressions_.filter(nullptr));
    return filters;
  }

  const Statement* filter_block(int line) {
    std::vector<const Filter*> filters = block_filters(true);
    end_tag();
    Body content = closed_body({"endfilter"});
    return parsed_.nodes.make<CaptureBlock>(line, std::vector<Target>{}, std::move(filters),
                                            std::move(content));
  }

  void parameters(MacroParts& parts) {
    tokens_.expect_sign("(");
    for (bool first = true; !tokens_.skip_sign(")"); first = false) {
      if (!first) {
        tokens_.expect_sign(",");
        if (tokens_.skip_sign(")")) return;
      }
      parts.parameters.push_back(tokens_.expect(TokenKind::name, "a parameter").text);
      state_.note(parts.parameters.back(), FirstUse::sets);
      if (tokens_.skip_sign("=")) {
        parts.defaults.push_back(expressions_.expression());
      } else if (!parts.defaults.empty()) {
        refuse("a parameter without a default stands behind one with a default");
      }
    }
  }

  /// The body of what runs on its own, where no loop of the outside can be left.
  Body separate_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body content = closed_body({end});
    loops_ = loops;
    return content;
  }

  /// The body of a macro whose parameters are known.
  void macro_body(MacroParts& parts, std::string_view end) {
    state_.macros.emplace_back();
    for (const std::string& name : parts.parameters) {
      state_.macros.back().note(name, FirstUse::sets);
    }
    parts.body = separate_body(end);
    parts.given = state_.macros.back();
    state_.macros.pop_back();
  }

  const Statement* macro(int line) {
    MacroParts parts;
    parts.name = tokens_.expect(TokenKind::name, "the name of the macro").text;
    parameters(parts);
    end_tag();
    macro_body(parts, "endmacro");
    return parsed_.nodes.make<Macro>(line, std::move(parts));
  }

  const Statement* call_block(int line) {
    MacroParts caller;
    caller.name = "caller";
    if (tokens_.peek().is_sign("(")) parameters(caller);
    const Expression* callee = expressions_.expression();
    const auto* call = dynamic_cast<const Call*>(callee);
    if (call == nullptr) refuse("expected a call");
    end_tag();
    macro_body(caller, "endcall");
    return parsed_.nodes.make<CallBlock>(line, call, std::move(caller));
  }

  const Statement* with_block(int line) {
    With::Assignments assignments;
    while (tokens_.peek().kind != TokenKind::block_end) {
      if (!assignments.empty()) tokens_.expect_sign(",");
      Target made = target();
      tokens_.expect_sign("=");
      assignments.emplace_back(std::move(made), expressions_.expression());
    }
    end_tag();
    Body content = closed_body({"endwith"});
    return parsed_.nodes.make<With>(line, std::move(assignments), std::move(content));
  }

  const Statement* generation(int line) {
    end_tag();
    parsed_.has_generation = true;
    Body content = separate_body("endgeneration");
    return parsed_.nodes.make<Generation>(line, std::move(content));
  }

  const Statement* jump(int line, const std::string& tag) {
    if (loops_ == 0) refuse("'{}' outside of a loop", tag);
    end_tag();
    return parsed_.nodes.make<Jump>(line, tag == "break" ? Flow::break_loop : Flow::continue_loop);
  }

  ParsedTemplate& parsed_;
  TokenStream& tokens_;
  ParserState state_;
  ExpressionParser expressions_;
  int loops_ = 0;  // that a break can leave
};

}  // namespace

ParserState::Deeper::Deeper(ParserState& state) : state_(state) {
  if (state.depth >= kMaxNesting) refuse("nested deeper than {} levels", kMaxNesting);
  ++state.depth;
}

const Token& TokenStream::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  line_ = peek().line;
  return token;
}

bool TokenStream::skip_sign(std::string_view sign) {
  if (!peek().is_sign(sign)) return false;
  next();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected(fmt::format("'{}'", sign));
}

const Token& TokenStream::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) unexpected(what);
  return next();
}

void TokenStream::unexpected(std::string_view expected) const {
  refuse("expected {}, found {}", expected, shown(peek()));
}

ParsedTemplate parse_template(std::string_view source, int& line) {
  std::vector<Token> found = tokenize(source, line);
  line = found.front().line;
  TokenStream tokens(std::move(found), line);
  ParsedTemplate parsed;
  StatementParser parser(parsed, tokens);
  parsed.body = parser.body({});
  return parsed;
}

}  // namespace moesaic::jinja
