#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/jinja/expressions.h"

namespace moesaic::jinja {

/// How a statement ends: a loop hears of the last two.
enum class Flow { onward, break_loop, continue_loop };

class Statement : public Node {
 public:
  using Node::Node;
  /// Writes what it says into the run's output.
  Flow execute(Run& run) const;

 protected:
  virtual Flow act(Run& run) const = 0;
};
using Body = std::vector<const Statement*>;
Flow execute_all(const Body& body, Run& run);

/// What a value is assigned to: a variable, a member of a namespace, or several in a row.
struct Target {
  std::string name;    ///< of the variable or namespace; empty for several
  std::string member;  ///< of the namespace; empty for a variable
  std::vector<Target> several;

  void assign(Run& run, const Value& value) const;
};

/// Text outside of tags.
class Data final : public Statement {
 public:
  Data(int line, std::string text) : Statement(line), text_(std::move(text)) {}

 private:
  Flow act(Run& run) const override;
  std::string text_;
};

/// {{ expression }}.
class Print final : public Statement {
 public:
  Print(int line, const Expression* expression) : Statement(line), expression_(expression) {}

 private:
  Flow act(Run& run) const override;
  const Expression* expression_;
};

/// if, elif and else, whose condition is nullptr.
class If final : public Statement {
 public:
  using Branches = std::vector<std::pair<const Expression*, Body>>;
  If(int line, Branches branches) : Statement(line), branches_(std::move(branches)) {}

 private:
  Flow act(Run& run) const override;
  Branches branches_;
};

class For final : public Statement {
 public:
  struct Parts {
    Target target;
    const Expression* items = nullptr;
    const Expression* condition = nullptr;
    Body body;
    Body otherwise;
  };
  For(int line, Parts parts) : Statement(line), parts_(std::move(parts)) {}

 private:
  Flow act(Run& run) const override;
  [[nodiscard]] std::vector<Value> chosen_items(Run& run) const;
  Parts parts_;
};

/// {% set target = value %}.
class Set final : public Statement {
 public:
  Set(int line, Target target, const Expression* value)
      : Statement(line), target_(std::move(target)), value_(value) {}

 private:
  Flow act(Run& run) const override;
  Target target_;
  const Expression* value_;
};

/// {% set target %} ... {% endset %} with a target, {% filter %} without.
class CaptureBlock final : public Statement {
 public:
  CaptureBlock(int line, std::vector<Target> target, std::vector<const Filter*> filters, Body body)
      : Statement(line),
        target_(std::move(target)),
        filters_(std::move(filters)),
        body_(std::move(body)) {}

 private:
  Flow act(Run& run) const override;
  std::vector<Target> target_;  // one or none
  std::vector<const Filter*> filters_;
  Body body_;
};

class With final : public Statement {
 public:
  using Assignments = std::vector<std::pair<Target, const Expression*>>;
  With(int line, Assignments assignments, Body body)
      : Statement(line), assignments_(std::move(assignments)), body_(std::move(body)) {}

 private:
  Flow act(Run& run) const override;
  Assignments assignments_;
  Body body_;
};

/// {% generation %}: what it writes is marked.
class Generation final : public Statement {
 public:
  Generation(int line, Body body) : Statement(line), body_(std::move(body)) {}

 private:
  Flow act(Run& run) const override;
  Body body_;
};

/// What a body does first with a name.
enum class FirstUse { none, reads, sets };

/// The names that a macro is given without parameters for them, if its body reads them first.
struct GivenNames {
  FirstUse caller = FirstUse::none;
  FirstUse kwargs = FirstUse::none;   ///< the named arguments that no parameter takes
  FirstUse varargs = FirstUse::none;  ///< the other arguments that no parameter takes

  void note(std::string_view name, FirstUse use);
};

/// The parameters and the body of a macro or a call block.
struct MacroParts {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<const Expression*> defaults;  ///< of the last parameters
  GivenNames given;
  Body body;
};

/// Makes a function of it that sees the variables of the scope where it stands.
[[nodiscard]] Value make_macro(const MacroParts& parts, Run& run);

class Macro final : public Statement {
 public:
  Macro(int line, MacroParts parts) : Statement(line), parts_(std::move(parts)) {}

 private:
  Flow act(Run& run) const override;
  MacroParts parts_;
};

/// {% call name(...) %}.
class CallBlock final : public Statement {
 public:
  CallBlock(int line, const Call* call, MacroParts caller)
      : Statement(line), call_(call), caller_(std::move(caller)) {}

 private:
  Flow act(Run& run) const override;
  const Call* call_;
  MacroParts caller_;
};

/// break and continue.
class Jump final : public Statement {
 public:
  Jump(int line, Flow flow) : Statement(line), flow_(flow) {}

 private:
  Flow act(Run&) const override { return flow_; }
  Flow flow_;
};

}  // namespace moesaic::jinja
