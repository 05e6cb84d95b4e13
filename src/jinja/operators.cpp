#include "src/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/jinja/format.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {
namespace {

[[noreturn]] void too_large() {
  refuse("an integer does not fit into 64 bits");
}

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void unsupported(Operation operation, const Value& left, const Value& right) {
  need(left);
  need(right);
  refuse("unsupported operand types for {}: '{}' and '{}'",
         kSigns[static_cast<std::size_t>(operation)], left.type_name(), right.type_name());
}

std::int64_t floor_divide(std::int64_t left, std::int64_t right) {
  if (right == 0) refuse("integer division or modulo by zero");
  if (right == -1 && left == INT64_MIN) too_large();
  return left / right - (left % right != 0 && (left < 0) != (right < 0) ? 1 : 0);
}

std::int64_t modulo(std::int64_t left, std::int64_t right) {
  if (right == 0) refuse("integer division or modulo by zero");
  if (right == -1) return 0;
  const std::int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value of_integers(Operation operation, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  switch (operation) {
    case Operation::add:
      if (__builtin_add_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operation::subtract:
      if (__builtin_sub_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operation::multiply:
      if (__builtin_mul_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operation::divide:
      if (right == 0) refuse("division by zero");
      return Value(static_cast<double>(left) / static_cast<double>(right));
    case Operation::floor_divide:
      return Value(floor_divide(left, right));
    case Operation::modulo:
      return Value(modulo(left, right));
    case Operation::power:
      if (right >= 0) return Value(power(left, right));
      if (left == 0) refuse("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  return {};
}

double python_modulo(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0.0) return std::copysign(0.0, right);
  return (rest < 0.0) != (right < 0.0) ? rest + right : rest;
}

Value of_floats(Operation operation, double left, double right) {
  const bool divides = operation == Operation::divide || operation == Operation::floor_divide ||
                       operation == Operation::modulo;
  if (divides && right == 0.0) refuse("float division by zero");
  switch (operation) {
    case Operation::add:
      return Value(left + right);
    case Operation::subtract:
      return Value(left - right);
    case Operation::multiply:
      return Value(left * right);
    case Operation::divide:
      return Value(left / right);
    case Operation::floor_divide:
      return Value(std::floor((left - python_modulo(left, right)) / right + 0.5));
    case Operation::modulo:
      return Value(python_modulo(left, right));
    case Operation::power:
      if (left == 0.0 && right < 0.0) refuse("0.0 cannot be raised to a negative power");
      if (left < 0.0 && std::trunc(right) != right) refuse("a power would be complex");
      return Value(std::pow(left, right));
  }
  return {};
}

bool is_list_or_tuple(const Sequence* sequence) {
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple);
}

std::optional<Value> joined(const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) {
    if (left.text()->size() + right.text()->size() > kMaxText) refuse("a text is too long");
    return Value(*left.text() + *right.text());
  }
  const Sequence* first = left.sequence();
  const Sequence* second = right.sequence();
  if (!is_list_or_tuple(first) || second == nullptr || first->kind != second->kind) {
    return std::nullopt;
  }
  std::vector<Value> items = first->items;
  items.insert(items.end(), second->items.begin(), second->items.end());
  return make_sequence(std::move(items), first->kind);
}

std::optional<Value> repeated(const Value& what, const Value& times) {
  if (!times.integer()) return std::nullopt;
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(*times.integer(), 0));
  if (const std::string* text = what.text()) {
    if (!text->empty() && count > kMaxText / text->size()) refuse("a text is too long");
    std::string out;
    out.reserve(text->size() * count);
    for (std::size_t i = 0; i < count && !text->empty(); ++i) out += *text;
    return Value(std::move(out));
  }
  const Sequence* sequence = what.sequence();
  if (!is_list_or_tuple(sequence)) return std::nullopt;
  constexpr std::size_t kMaxItems = 1 << 22;
  if (!sequence->items.empty() && count > kMaxItems / sequence->items.size()) {
    refuse("a list is too long");
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && !sequence->items.empty(); ++i) {
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return make_sequence(std::move(items), sequence->kind);
}

bool equal_items(const Sequence& left, const Sequence& right) {
  return left.kind == right.kind && std::equal(left.items.begin(), left.items.end(),
                                               right.items.begin(), right.items.end(), equal);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  return std::all_of(left.entries().begin(), left.entries().end(), [&](const auto& entry) {
    const Value* other = right.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

void need(const Value& value) {
  if (const Undefined* missing = value.undefined()) refuse("{}", *missing->why);
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const auto a = left.integer();
    const auto b = right.integer();
    return a && b ? *a == *b : *left.number() == *right.number();
  }
  if (left.is_text() && right.is_text()) return *left.text() == *right.text();
  if (left.sequence() != nullptr && right.sequence() != nullptr) {
    return left.sequence() == right.sequence() || equal_items(*left.sequence(), *right.sequence());
  }
  if (left.dict() != nullptr && right.dict() != nullptr) {
    return left.dict() == right.dict() || equal_dicts(*left.dict(), *right.dict());
  }
  if (left.object() != nullptr) return left.object() == right.object();
  if (left.callable() != nullptr) return left.callable() == right.callable();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

bool less(const Value& left, const Value& right) {
  need(left);
  need(right);
  if (left.is_number() && right.is_number()) {
    const auto a = left.integer();
    const auto b = right.integer();
    return a && b ? *a < *b : *left.number() < *right.number();
  }
  // The order of UTF-8 bytes is that of code points.
  if (left.is_text() && right.is_text()) return *left.text() < *right.text();
  const Sequence* first = left.sequence();
  const Sequence* second = right.sequence();
  if (is_list_or_tuple(first) && second != nullptr && first->kind == second->kind) {
    const auto [a, b] = std::mismatch(first->items.begin(), first->items.end(),
                                      second->items.begin(), second->items.end(), equal);
    if (b == second->items.end()) return false;
    return a == first->items.end() || less(*a, *b);
  }
  refuse("'<' not supported between instances of '{}' and '{}'", left.type_name(),
         right.type_name());
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (!item.is_text()) {
      refuse("'in <string>' requires string as left operand, not {}", item.type_name());
    }
    return find_text(*text, *item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  const Sequence* sequence = container.sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::generator) {
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& member) { return equal(member, item); });
  }
  const std::vector<Value> items = items_of(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& member) { return equal(member, item); });
}

Value compute(Operation operation, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const auto a = left.integer();
    const auto b = right.integer();
    if (a && b) return of_integers(operation, *a, *b);
    return of_floats(operation, *left.number(), *right.number());
  }
  std::optional<Value> result;
  if (operation == Operation::add) result = joined(left, right);
  if (operation == Operation::multiply) {
    result = repeated(left, right);
    if (!result) result = repeated(right, left);
  }
  if (operation == Operation::modulo && left.is_text()) {
    result = Value(format_percent(*left.text(), right));
  }
  if (!result) unsupported(operation, left, right);
  return *std::move(result);
}

Value negative(const Value& value) {
  if (value.real() != nullptr) return Value(-*value.real());
  need(value);
  if (!value.integer()) refuse("bad operand type for unary -: '{}'", value.type_name());
  return of_integers(Operation::subtract, 0, *value.integer());
}

Value positive(const Value& value) {
  need(value);
  if (!value.is_number()) refuse("bad operand type for unary +: '{}'", value.type_name());
  return value.real() != nullptr ? value : Value(*value.integer());
}

}  // namespace moesaic::jinja
