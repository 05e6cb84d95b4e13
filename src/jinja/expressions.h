#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/value.h"

namespace moesaic::jinja {

/// A node of the parsed template, which NodeStore owns.
class Node {
 public:
  explicit Node(int line) : line_(line) {}
  virtual ~Node() = default;
  [[nodiscard]] int line() const { return line_; }

 private:
  int line_;
};

/// Owns the nodes of a template in a row: to free them takes no recursion.
class NodeStore {
 public:
  template <typename Kind, typename... Args>
  Kind* make(Args&&... args) {
    auto node = std::make_unique<Kind>(std::forward<Args>(args)...);
    Kind* made = node.get();
    nodes_.push_back(std::move(node));
    return made;
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

class Expression : public Node {
 public:
  using Node::Node;
  /// Throws Error{file} for what Python or Jinja refuse.
  [[nodiscard]] Value evaluate(Run& run) const;

 protected:
  [[nodiscard]] virtual Value value(Run& run) const = 0;
};
using ExpressionList = std::vector<const Expression*>;

class Literal final : public Expression {
 public:
  Literal(int line, Value value) : Expression(line), value_(std::move(value)) {}

 private:
  Value value(Run&) const override { return value_; }
  Value value_;
};

class Name final : public Expression {
 public:
  Name(int line, std::string name) : Expression(line), name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Value value(Run& run) const override { return run.look_up(name_); }
  std::string name_;
};

/// [a, b] and (a, b).
class Display final : public Expression {
 public:
  Display(int line, SequenceKind kind, ExpressionList items)
      : Expression(line), kind_(kind), items_(std::move(items)) {}

 private:
  Value value(Run& run) const override;
  SequenceKind kind_;
  ExpressionList items_;
};

/// {a: b}.
class DictDisplay final : public Expression {
 public:
  using Entries = std::vector<std::pair<const Expression*, const Expression*>>;
  DictDisplay(int line, Entries entries) : Expression(line), entries_(std::move(entries)) {}

 private:
  Value value(Run& run) const override;
  Entries entries_;
};

class Attribute final : public Expression {
 public:
  Attribute(int line, const Expression* object, std::string name)
      : Expression(line), object_(object), name_(std::move(name)) {}

 private:
  Value value(Run& run) const override;
  const Expression* object_;
  std::string name_;
};

class Subscript final : public Expression {
 public:
  Subscript(int line, const Expression* object, const Expression* key)
      : Expression(line), object_(object), key_(key) {}

 private:
  Value value(Run& run) const override;
  const Expression* object_;
  const Expression* key_;
};

/// object[start:stop:step]; nullptr for what is not given.
class SliceExpression final : public Expression {
 public:
  struct Bounds {
    const Expression* start = nullptr;
    const Expression* stop = nullptr;
    const Expression* step = nullptr;
  };
  SliceExpression(int line, const Expression* object, Bounds bounds)
      : Expression(line), object_(object), bounds_(bounds) {}

 private:
  Value value(Run& run) const override;
  const Expression* object_;
  Bounds bounds_;
};

enum class Sign { plus, minus, negation };
class Unary final : public Expression {
 public:
  Unary(int line, Sign sign, const Expression* operand)
      : Expression(line), sign_(sign), operand_(operand) {}

 private:
  Value value(Run& run) const override;
  Sign sign_;
  const Expression* operand_;
};

class Arithmetic final : public Expression {
 public:
  Arithmetic(int line, Operation operation, const Expression* left, const Expression* right)
      : Expression(line), operation_(operation), left_(left), right_(right) {}

 private:
  Value value(Run& run) const override;
  Operation operation_;
  const Expression* left_;
  const Expression* right_;
};

/// a ~ b ~ c.
class Concatenation final : public Expression {
 public:
  Concatenation(int line, ExpressionList parts) : Expression(line), parts_(std::move(parts)) {}

 private:
  Value value(Run& run) const override;
  ExpressionList parts_;
};

/// `and`, `or`: the value that decides.
class Logical final : public Expression {
 public:
  Logical(int line, bool is_and, const Expression* left, const Expression* right)
      : Expression(line), is_and_(is_and), left_(left), right_(right) {}

 private:
  Value value(Run& run) const override;
  bool is_and_;
  const Expression* left_;
  const Expression* right_;
};

enum class Relation { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
/// a < b <= c.
class Comparison final : public Expression {
 public:
  using Links = std::vector<std::pair<Relation, const Expression*>>;
  Comparison(int line, const Expression* first, Links links)
      : Expression(line), first_(first), links_(std::move(links)) {}

 private:
  Value value(Run& run) const override;
  const Expression* first_;
  Links links_;
};

/// a if b else c; nullptr for c gives what is undefined.
class Conditional final : public Expression {
 public:
  Conditional(int line, const Expression* condition, const Expression* yes, const Expression* no)
      : Expression(line), condition_(condition), yes_(yes), no_(no) {}

 private:
  Value value(Run& run) const override;
  const Expression* condition_;
  const Expression* yes_;
  const Expression* no_;
};

/// The arguments of a call, a filter or a test, before they are evaluated.
struct ArgumentExpressions {
  ExpressionList positional;
  std::vector<std::pair<std::string, const Expression*>> named;
  const Expression* list = nullptr;  ///< *list
  const Expression* dict = nullptr;  ///< **dict
  [[nodiscard]] Arguments evaluate(Run& run) const;
};

class Call final : public Expression {
 public:
  Call(int line, const Expression* callee, ArgumentExpressions arguments)
      : Expression(line), callee_(callee), arguments_(std::move(arguments)) {}
  /// Calls with one more named argument, `caller`.
  [[nodiscard]] Value call(Run& run, const Value* caller) const;

 private:
  Value value(Run& run) const override { return call(run, nullptr); }
  const Expression* callee_;
  ArgumentExpressions arguments_;
};

/// value | name(arguments); without a value in the filter blocks, which give it themselves.
class Filter final : public Expression {
 public:
  Filter(int line, const Expression* input, std::string name, ArgumentExpressions arguments);
  [[nodiscard]] Value apply(Run& run, const Value& input) const;

 private:
  Value value(Run& run) const override { return apply(run, input_->evaluate(run)); }
  const Expression* input_;
  std::string name_;
  Function function_;
  ArgumentExpressions arguments_;
};

/// value is name(arguments).
class Test final : public Expression {
 public:
  Test(int line, const Expression* input, std::string name, ArgumentExpressions arguments);

 private:
  Value value(Run& run) const override;
  const Expression* input_;
  Function function_;
  ArgumentExpressions arguments_;
};

/// Calls what a template took for a function.
[[nodiscard]] Value call_value(Run& run, const Value& callee, const Arguments& arguments);

}  // namespace moesaic::jinja
