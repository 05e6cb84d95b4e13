#include "src/jinja/expressions.h"

#include <algorithm>

#include "src/jinja/filters.h"
#include "src/jinja/print.h"
#include "src/jinja/questions.h"

namespace moesaic::jinja {
namespace {

constexpr std::size_t kStep = 8;  // the work of a step, as in Limits

bool holds(Relation relation, const Value& left, const Value& right) {
  switch (relation) {
    case Relation::equal:
      return equal(left, right);
    case Relation::unequal:
      return !equal(left, right);
    case Relation::less:
      return less(left, right);
    case Relation::greater:
      return less(right, left);
    case Relation::less_equal:
      return less(left, right) || equal(left, right);
    case Relation::greater_equal:
      return less(right, left) || equal(left, right);
    case Relation::in:
      return contains(right, left);
    case Relation::not_in:
      return !contains(right, left);
  }
  return false;
}

/// What comparing or searching a container costs.
std::size_t weight(const Value& value) {
  if (const std::string* text = value.text()) return text->size() / 16;
  return static_cast<std::size_t>(value.extent().values);
}

}  // namespace

Value Expression::evaluate(Run& run) const {
  const Run::Deeper deeper(run);
  run.charge(kStep);
  run.set_line(line());
  return value(run);
}

Value Display::value(Run& run) const {
  std::vector<Value> items;
  items.reserve(items_.size());
  for (const Expression* item : items_) items.push_back(item->evaluate(run));
  return run.made(make_sequence(std::move(items), kind_));
}

Value DictDisplay::value(Run& run) const {
  Dict dict;
  for (const auto& [key, value] : entries_) {
    const Value at = key->evaluate(run);
    dict.set(at, value->evaluate(run));
  }
  return make_dict(std::move(dict));
}

Value Attribute::value(Run& run) const {
  const Value object = object_->evaluate(run);
  run.set_line(line());
  return attribute(object, name_);
}

Value Subscript::value(Run& run) const {
  const Value object = object_->evaluate(run);
  const Value key = key_->evaluate(run);
  run.set_line(line());
  if (object.is_text()) run.charge(object.text()->size() / 16);
  return subscript(object, key);
}

Value SliceExpression::value(Run& run) const {
  const auto bound = [&](const Expression* expression) {
    return expression == nullptr ? Value() : expression->evaluate(run);
  };
  const Value object = object_->evaluate(run);
  const Slice slice{bound(bounds_.start), bound(bounds_.stop), bound(bounds_.step)};
  run.set_line(line());
  run.charge(weight(object));
  return run.made(subscript(object, slice));
}

Value Unary::value(Run& run) const {
  const Value operand = operand_->evaluate(run);
  run.set_line(line());
  if (sign_ == Sign::negation) return Value(!operand.truth());
  return sign_ == Sign::minus ? negative(operand) : positive(operand);
}

Value Arithmetic::value(Run& run) const {
  const Value left = left_->evaluate(run);
  const Value right = right_->evaluate(run);
  run.set_line(line());
  return run.made(compute(operation_, left, right));
}

Value Concatenation::value(Run& run) const {
  std::string text;
  for (const Expression* part : parts_) {
    text += to_text(part->evaluate(run));
    if (text.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
  }
  return run.made(Value(std::move(text)));
}

Value Logical::value(Run& run) const {
  Value left = left_->evaluate(run);
  return left.truth() == is_and_ ? right_->evaluate(run) : left;
}

Value Comparison::value(Run& run) const {
  Value left = first_->evaluate(run);
  for (const auto& [relation, expression] : links_) {
    Value right = expression->evaluate(run);
    run.set_line(line());
    run.charge(std::min(weight(left), weight(right)) +
               (relation >= Relation::in ? weight(right) : 0));
    if (!holds(relation, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Conditional::value(Run& run) const {
  if (condition_->evaluate(run).truth()) return yes_->evaluate(run);
  if (no_ != nullptr) return no_->evaluate(run);
  return Value::undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

Arguments ArgumentExpressions::evaluate(Run& run) const {
  Arguments arguments;
  arguments.positional.reserve(positional.size());
  for (const Expression* argument : positional) {
    arguments.positional.push_back(argument->evaluate(run));
  }
  if (list != nullptr) {
    for (Value& item : items_of(list->evaluate(run))) {
      arguments.positional.push_back(std::move(item));
    }
  }
  for (const auto& [name, argument] : named) {
    arguments.named.emplace_back(name, argument->evaluate(run));
  }
  if (dict != nullptr) {
    const Value all = dict->evaluate(run);
    if (all.dict() == nullptr) refuse("argument after ** must be a mapping");
    for (const auto& [key, value] : all.dict()->entries()) {
      arguments.named.emplace_back(text_of(key, "a keyword"), value);
    }
  }
  return arguments;
}

Value call_value(Run& run, const Value& callee, const Arguments& arguments) {
  need(callee);
  if (callee.callable() == nullptr) refuse("'{}' object is not callable", callee.type_name());
  return run.made(callee.callable()->call(run, arguments));
}

Value Call::call(Run& run, const Value* caller) const {
  const Value callee = callee_->evaluate(run);
  Arguments arguments = arguments_.evaluate(run);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  run.set_line(line());
  return call_value(run, callee, arguments);
}

Filter::Filter(int line, const Expression* input, std::string name, ArgumentExpressions arguments)
    : Expression(line),
      input_(input),
      name_(std::move(name)),
      function_(filter_named(name_)),
      arguments_(std::move(arguments)) {
  if (function_ == nullptr) refuse("there is no filter named '{}'", name_);
}

Value Filter::apply(Run& run, const Value& input) const {
  const Arguments arguments = arguments_.evaluate(run);
  run.set_line(line());
  run.charge(weight(input));
  return run.made(function_(run, input, arguments));
}

Test::Test(int line, const Expression* input, std::string name, ArgumentExpressions arguments)
    : Expression(line),
      input_(input),
      function_(question_named(name)),
      arguments_(std::move(arguments)) {
  if (function_ == nullptr) refuse("there is no test named '{}'", name);
}

Value Test::value(Run& run) const {
  const Value input = input_->evaluate(run);
  const Arguments arguments = arguments_.evaluate(run);
  run.set_line(line());
  return function_(run, input, arguments);
}

}  // namespace moesaic::jinja
