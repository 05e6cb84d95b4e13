#include "src/jinja/questions.h"

#include "src/jinja/filters.h"
#include "src/jinja/methods.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {
namespace {

using Holds = bool (*)(const Value&);
using Relates = bool (*)(const Value&, const Value&);

template <Holds holds>
Value ask(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "the test", {});
  return Value(holds(self));
}

template <Relates relates>
Value relate(Run&, const Value& self, const Arguments& arguments) {
  return Value(relates(self, *bind(arguments, "the test", {"other"}, 1)[0]));
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.boolean() != nullptr;
}
bool is_true(const Value& value) {
  return value.boolean() != nullptr && *value.boolean();
}
bool is_false(const Value& value) {
  return value.boolean() != nullptr && !*value.boolean();
}
bool is_integer(const Value& value) {
  return value.is_integer();
}
bool is_float(const Value& value) {
  return value.real() != nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_text();
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.dict() != nullptr ||
         value.sequence() != nullptr;
}
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return is_iterable(value);
  return sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple ||
         sequence->kind == SequenceKind::range;
}
bool is_callable(const Value& value) {
  return value.callable() != nullptr || value.is_undefined();
}
bool never(const Value&) {
  return false;
}

bool is_divisible(const Value& value, const Value& by) {
  return equal(compute(Operation::modulo, value, by), Value(std::int64_t{0}));
}

bool is_odd(const Value& value) {
  const Value rest = compute(Operation::modulo, value, Value(std::int64_t{2}));
  return equal(rest, Value(std::int64_t{1}));
}
bool is_even(const Value& value) {
  return is_divisible(value, Value(std::int64_t{2}));
}

bool is_unequal(const Value& left, const Value& right) {
  return !equal(left, right);
}
bool is_less_or_equal(const Value& left, const Value& right) {
  return less(left, right) || equal(left, right);
}
bool is_greater(const Value& left, const Value& right) {
  return less(right, left);
}
bool is_greater_or_equal(const Value& left, const Value& right) {
  return less(right, left) || equal(left, right);
}
bool is_in(const Value& item, const Value& container) {
  return contains(container, item);
}
bool is_same(const Value& left, const Value& right) {
  if (left.sequence() != nullptr) return left.sequence() == right.sequence();
  if (left.dict() != nullptr) return left.dict() == right.dict();
  return left.type_name() == right.type_name() && equal(left, right);
}

bool names_filter(const Value& name) {
  return name.is_text() && filter_named(*name.text()) != nullptr;
}
bool names_test(const Value& name) {
  return name.is_text() && question_named(*name.text()) != nullptr;
}

/// "is lower", "is upper": those of str().
template <bool upper>
Value has_case(Run& run, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "the test", {});
  return text_question(upper ? "isupper" : "islower")(run, Value(to_text(self)), arguments);
}

constexpr NamedFunction kQuestions[] = {
    {"defined", ask<is_defined>},
    {"undefined", ask<is_undefined>},
    {"none", ask<is_none>},
    {"boolean", ask<is_boolean>},
    {"true", ask<is_true>},
    {"false", ask<is_false>},
    {"integer", ask<is_integer>},
    {"float", ask<is_float>},
    {"number", ask<is_number>},
    {"string", ask<is_string>},
    {"mapping", ask<is_mapping>},
    {"iterable", ask<is_iterable>},
    {"sequence", ask<is_sequence>},
    {"callable", ask<is_callable>},
    {"odd", ask<is_odd>},
    {"even", ask<is_even>},
    {"escaped", ask<never>},
    {"filter", ask<names_filter>},
    {"test", ask<names_test>},
    {"lower", has_case<false>},
    {"upper", has_case<true>},
    {"divisibleby", relate<is_divisible>},
    {"eq", relate<equal>},
    {"equalto", relate<equal>},
    {"==", relate<equal>},
    {"ne", relate<is_unequal>},
    {"!=", relate<is_unequal>},
    {"lt", relate<less>},
    {"lessthan", relate<less>},
    {"<", relate<less>},
    {"le", relate<is_less_or_equal>},
    {"<=", relate<is_less_or_equal>},
    {"gt", relate<is_greater>},
    {"greaterthan", relate<is_greater>},
    {">", relate<is_greater>},
    {"ge", relate<is_greater_or_equal>},
    {">=", relate<is_greater_or_equal>},
    {"in", relate<is_in>},
    {"sameas", relate<is_same>},
};

}  // namespace

Function question_named(std::string_view name) {
  return look_up(kQuestions, name);
}

}  // namespace moesaic::jinja
