#include "src/jinja/value.h"

#include <algorithm>

#include "src/jinja/operators.h"

namespace moesaic::jinja {
namespace {

/// A linear search is as fast up to here.
constexpr std::size_t kIndexFrom = 12;

/// What prints, compares and frees containers is recursive.
constexpr int kMaxDepth = 250;
constexpr std::int64_t kMaxValues = 1 << 22;

bool is_hashable(const Value& key) {
  if (const Sequence* sequence = key.sequence()) {
    return sequence->kind == SequenceKind::tuple &&
           std::all_of(sequence->items.begin(), sequence->items.end(), is_hashable);
  }
  return key.dict() == nullptr;
}

}  // namespace

void Extent::add(const Extent& member) {
  depth = std::max(depth, member.depth + 1);
  values += member.values;
  if (depth > kMaxDepth) refuse("a value is nested deeper than {} levels", kMaxDepth);
  if (values > kMaxValues) refuse("a value has more than {} parts", kMaxValues);
}

Value Value::undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value Value::unknown(std::string_view name) {
  return undefined(fmt::format("'{}' is undefined", name));
}

const std::string* Value::text() const {
  const Text* text = std::get_if<Text>(&data_);
  return text == nullptr ? nullptr : text->get();
}

const Sequence* Value::sequence() const {
  const auto* items = std::get_if<std::shared_ptr<const Sequence>>(&data_);
  return items == nullptr ? nullptr : items->get();
}

const Dict* Value::dict() const {
  const auto* found = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

const Callable* Value::callable() const {
  const auto* found = std::get_if<std::shared_ptr<const Callable>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

Object* Value::object() const {
  const auto* found = std::get_if<std::shared_ptr<Object>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* number = std::get_if<std::int64_t>(&data_)) return *number;
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = real()) return *value;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

std::string_view Value::type_name() const {
  if (const Sequence* items = sequence()) {
    constexpr std::string_view kNames[] = {"list",      "tuple",       "generator", "range",
                                           "dict_keys", "dict_values", "dict_items"};
    return kNames[static_cast<std::size_t>(items->kind)];
  }
  if (const Object* found = object()) return found->type_name();
  constexpr std::string_view kNames[] = {"NoneType", "Undefined", "bool", "int",     "float",
                                         "str",      "",          "dict", "function"};
  return kNames[data_.index()];
}

Extent Value::extent() const {
  if (const Sequence* items = sequence()) return items->extent;
  if (const Dict* found = dict()) return found->extent();
  return {};
}

bool Value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (const auto value = number()) return *value != 0.0;
  if (const std::string* found = text()) return !found->empty();
  if (const Sequence* items = sequence()) {
    return items->kind == SequenceKind::generator || !items->items.empty();
  }
  if (const Dict* found = dict()) return !found->entries().empty();
  return true;
}

Value make_sequence(std::vector<Value> items, SequenceKind kind) {
  Sequence sequence;
  sequence.kind = kind;
  sequence.items = std::move(items);
  for (const Value& item : sequence.items) sequence.extent.add(item.extent());
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

Value make_dict(Dict dict) {
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

void Dict::set(const Value& key, Value value) {
  if (!is_hashable(key)) refuse("unhashable type: '{}'", key.type_name());
  const std::ptrdiff_t at = position(key);
  if (at >= 0) {
    Value& old = entries_[static_cast<std::size_t>(at)].second;
    extent_.values -= old.extent().values;
    extent_.add(value.extent());
    old = std::move(value);
    return;
  }
  extent_.add(key.extent());
  extent_.add(value.extent());
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() < kIndexFrom) return;
  // The keys' texts are shared, so their bytes stay where they are.
  for (std::size_t i = entries_.size() == kIndexFrom ? 0 : entries_.size() - 1; i < entries_.size();
       ++i) {
    if (const std::string* text = entries_[i].first.text()) index_.emplace(*text, i);
  }
}

std::ptrdiff_t Dict::position(std::string_view key) const {
  if (entries_.size() >= kIndexFrom) {
    const auto found = index_.find(key);
    return found == index_.end() ? -1 : static_cast<std::ptrdiff_t>(found->second);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string* text = entries_[i].first.text();
    if (text != nullptr && *text == key) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

std::ptrdiff_t Dict::position(const Value& key) const {
  if (const std::string* text = key.text()) return position(std::string_view(*text));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (equal(entries_[i].first, key)) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

const Value* Dict::find(const Value& key) const {
  const std::ptrdiff_t at = position(key);
  return at < 0 ? nullptr : &entries_[static_cast<std::size_t>(at)].second;
}

const Value* Dict::find(std::string_view key) const {
  const std::ptrdiff_t at = position(key);
  return at < 0 ? nullptr : &entries_[static_cast<std::size_t>(at)].second;
}

bool Object::set_member(std::string_view, Value) {
  return false;
}

std::vector<const Value*> bind(const Arguments& arguments, std::string_view callee,
                               std::initializer_list<std::string_view> names,
                               std::size_t required) {
  if (arguments.positional.size() > names.size()) {
    refuse("{} takes at most {} arguments, {} were given", callee, names.size(),
           arguments.positional.size());
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) refuse("{} has no argument '{}'", callee, name);
    const Value*& slot = bound[static_cast<std::size_t>(found - names.begin())];
    if (slot != nullptr) refuse("{} got the argument '{}' twice", callee, name);
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) refuse("{} needs the argument '{}'", callee, names.begin()[i]);
  }
  return bound;
}

}  // namespace moesaic::jinja
