#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/jinja/value.h"

namespace moesaic::jinja {

// Python's operators. All throw where Python raises, with its words. Integers are 64 bits long;
// what would need more is refused.

[[nodiscard]] bool equal(const Value& left, const Value& right);
/// left < right.
[[nodiscard]] bool less(const Value& left, const Value& right);
/// item in container.
[[nodiscard]] bool contains(const Value& container, const Value& item);

enum class Operation { add, subtract, multiply, divide, floor_divide, modulo, power };
[[nodiscard]] Value compute(Operation operation, const Value& left, const Value& right);
[[nodiscard]] Value negative(const Value& value);
/// +value.
[[nodiscard]] Value positive(const Value& value);

/// object.name as Jinja has it: a method, else a member; undefined if there is none. Throws if
/// the object is undefined.
[[nodiscard]] Value attribute(const Value& object, std::string_view name);
/// object[key]: a member, else a method.
[[nodiscard]] Value subscript(const Value& object, const Value& key);

/// The bounds of a slice; None counts as not given.
struct Slice {
  Value start;
  Value stop;
  Value step;
};
[[nodiscard]] Value subscript(const Value& object, const Slice& slice);

/// What a loop over the value meets; takes all that is left of a generator.
[[nodiscard]] std::vector<Value> items_of(const Value& value);
/// len(); nullopt for what has none.
[[nodiscard]] std::optional<std::int64_t> length_of(const Value& value);

/// Throws what is wrong with a value that is undefined.
void need(const Value& value);
/// `value` as an integer for an argument that must be one.
[[nodiscard]] std::int64_t integer_of(const Value& value, std::string_view what);
/// `value` as a text for an argument that must be one.
[[nodiscard]] const std::string& text_of(const Value& value, std::string_view what);

}  // namespace moesaic::jinja
