#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/methods.h"
#include "src/jinja/operators.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

Value missing_member(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

/// The position that Python means by `index`; nothing if it is outside.
std::optional<std::int64_t> position(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return index;
}

bool has_positions(const Sequence& sequence) {
  return sequence.kind == SequenceKind::list || sequence.kind == SequenceKind::tuple ||
         sequence.kind == SequenceKind::range;
}

std::string character_at(std::string_view text, std::int64_t index) {
  const std::size_t begin = byte_of_character(text, index);
  return std::string(text.substr(begin, utf8_length(text[begin])));
}

std::optional<Value> element(const Value& object, std::int64_t index) {
  if (const Sequence* sequence = object.sequence()) {
    if (!has_positions(*sequence)) return std::nullopt;
    const auto at = position(index, std::ssize(sequence->items));
    if (!at) return std::nullopt;
    return sequence->items[static_cast<std::size_t>(*at)];
  }
  const std::string* text = object.text();
  if (text == nullptr) return std::nullopt;
  const auto at = position(index, character_count(*text));
  if (!at) return std::nullopt;
  return Value(character_at(*text, *at));
}

/// As Python's slice.indices() gives them.
RangeEnds slice_ends(const Slice& slice, std::int64_t size) {
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    return value.is_none() ? fallback : integer_of(value, "a slice index");
  };
  const std::int64_t step = bound(slice.step, 1);
  if (step == 0) refuse("slice step cannot be zero");
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? size : size - 1;
  const auto clamped = [&](std::int64_t index) {
    if (index < 0) index = index < -size ? -1 - size : index + size;
    return std::clamp(index, lowest, highest);
  };
  const std::int64_t start =
      slice.start.is_none() ? (step > 0 ? 0 : size - 1) : clamped(bound(slice.start, 0));
  const std::int64_t stop =
      slice.stop.is_none() ? (step > 0 ? size : -1) : clamped(bound(slice.stop, 0));
  return {start, stop, step};
}

std::vector<std::int64_t> slice_positions(const Slice& slice, std::int64_t size) {
  const auto [start, stop, step] = slice_ends(slice, size);
  std::vector<std::int64_t> positions;
  if (step > 0) {
    for (std::int64_t at = start; at < stop; at += std::min(step, size + 1))
      positions.push_back(at);
  } else {
    for (std::int64_t at = start; at > stop; at += std::max(step, -size - 1)) {
      positions.push_back(at);
    }
  }
  return positions;
}

Value slice_of_text(std::string_view text, const Slice& slice) {
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) begins.push_back(at);
  std::string out;
  for (const std::int64_t at : slice_positions(slice, std::ssize(begins))) {
    const std::size_t begin = begins[static_cast<std::size_t>(at)];
    out += text.substr(begin, utf8_length(text[begin]));
  }
  return Value(std::move(out));
}

/// Of a range with so many numbers, as Python has it: a range.
RangeEnds slice_of_range(const RangeEnds& range, const Slice& slice, std::int64_t size) {
  const RangeEnds part = slice_ends(slice, size);
  const auto moved = [&](std::int64_t start, std::int64_t steps) {
    std::int64_t to = 0;
    const bool is_too_far =
        __builtin_mul_overflow(range.step, steps, &to) || __builtin_add_overflow(start, to, &to);
    if (is_too_far) refuse("the slice of a range goes beyond 64 bits");
    return to;
  };
  return {moved(range.start, part.start), moved(range.start, part.stop), moved(0, part.step)};
}

std::vector<Value> characters_of(std::string_view text) {
  std::vector<Value> items;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    items.emplace_back(text.substr(at, utf8_length(text[at])));
  }
  return items;
}

}  // namespace

Value attribute(const Value& object, std::string_view name) {
  need(object);
  if (name.starts_with('_')) return missing_member(object, name);
  if (auto method = method_of(object, name)) return *std::move(method);
  if (const Dict* dict = object.dict()) {
    if (const Value* member = dict->find(name)) return *member;
  }
  if (const Object* found = object.object()) {
    if (auto member = found->member(name)) return *std::move(member);
  }
  return missing_member(object, name);
}

Value subscript(const Value& object, const Value& key) {
  need(object);
  if (const Dict* dict = object.dict()) {
    if (key.sequence() != nullptr && key.sequence()->kind != SequenceKind::tuple) {
      return missing_member(object, "[...]");
    }
    if (const Value* member = dict->find(key)) return *member;
  } else if (key.integer()) {
    if (auto found = element(object, *key.integer())) return *std::move(found);
    return Value::undefined(
        fmt::format("'{} object' has no element {}", object.type_name(), *key.integer()));
  }
  if (const std::string* name = key.text()) return attribute(object, *name);
  return missing_member(object, key.type_name());
}

Value subscript(const Value& object, const Slice& slice) {
  need(object);
  if (const std::string* text = object.text()) return slice_of_text(*text, slice);
  const Sequence* sequence = object.sequence();
  if (sequence == nullptr || !has_positions(*sequence)) {
    refuse("'{}' object has no slices", object.type_name());
  }
  Sequence part;
  part.kind = sequence->kind;
  for (const std::int64_t at : slice_positions(slice, std::ssize(sequence->items))) {
    part.items.push_back(sequence->items[static_cast<std::size_t>(at)]);
    part.extent.add(part.items.back().extent());
  }
  if (part.kind == SequenceKind::range) {
    part.ends = slice_of_range(sequence->ends, slice, std::ssize(sequence->items));
  }
  return Value(std::make_shared<const Sequence>(std::move(part)));
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const std::string* text = value.text()) return characters_of(*text);
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind != SequenceKind::generator) return sequence->items;
    const auto left = sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken);
    sequence->taken = sequence->items.size();
    return {left, sequence->items.end()};
  }
  const Dict* dict = value.dict();
  if (dict == nullptr) refuse("'{}' object is not iterable", value.type_name());
  std::vector<Value> keys;
  for (const auto& entry : dict->entries()) keys.push_back(entry.first);
  return keys;
}

std::optional<std::int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return character_count(*text);
  if (const Dict* dict = value.dict()) return std::ssize(dict->entries());
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->kind == SequenceKind::generator) return std::nullopt;
  return std::ssize(sequence->items);
}

std::int64_t integer_of(const Value& value, std::string_view what) {
  need(value);
  if (!value.integer()) refuse("{} must be an integer, not '{}'", what, value.type_name());
  return *value.integer();
}

const std::string& text_of(const Value& value, std::string_view what) {
  need(value);
  if (!value.is_text()) refuse("{} must be a string, not '{}'", what, value.type_name());
  return *value.text();
}

}  // namespace moesaic::jinja
