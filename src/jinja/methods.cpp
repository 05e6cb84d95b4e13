#include "src/jinja/methods.h"

#include <algorithm>
#include <cmath>

#include "src/jinja/operators.h"

namespace moesaic::jinja {
namespace {

Value dict_get(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "get()", {"key", "default"}, 1);
  const Value* found = self.dict()->find(*bound[0]);
  if (found != nullptr) return *found;
  return bound[1] == nullptr ? Value() : *bound[1];
}

Value dict_items(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "items()", {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    items.push_back(make_sequence({key, value}, SequenceKind::tuple));
  }
  return make_sequence(std::move(items), SequenceKind::items);
}

Value dict_keys(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "keys()", {});
  return make_sequence(items_of(self), SequenceKind::keys);
}

Value dict_values(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "values()", {});
  std::vector<Value> items;
  for (const auto& entry : self.dict()->entries()) items.push_back(entry.second);
  return make_sequence(std::move(items), SequenceKind::values);
}

Value copy(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "copy()", {});
  return self;
}

Value list_count(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "count()", {"value"}, 1);
  const auto& items = self.sequence()->items;
  return Value(static_cast<std::int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, *bound[0]); })));
}

Value list_index(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "index()", {"value", "start"}, 1);
  const auto& items = self.sequence()->items;
  std::int64_t start = bound[1] == nullptr ? 0 : integer_of(*bound[1], "start");
  if (start < 0) start = std::max<std::int64_t>(start + std::ssize(items), 0);
  for (; start < std::ssize(items); ++start) {
    if (equal(items[static_cast<std::size_t>(start)], *bound[0])) return Value(start);
  }
  refuse("the value is not in the {}", self.type_name());
}

Value is_whole_float(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "is_integer()", {});
  return Value(std::trunc(*self.number()) == *self.number());
}

template <std::size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Whether Python has such a method and it changes its object, which the sandbox forbids.
bool changes_object(const Value& object, std::string_view name) {
  constexpr std::string_view kOfLists[] = {"append", "extend",  "insert", "pop",
                                           "remove", "reverse", "sort",   "clear"};
  constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->kind == SequenceKind::list) return among(kOfLists, name);
  return object.dict() != nullptr && among(kOfDicts, name);
}

}  // namespace

Function container_method(const Value& object, std::string_view name) {
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr) {
    const bool is_list = sequence->kind == SequenceKind::list;
    if (!is_list && sequence->kind != SequenceKind::tuple) return nullptr;
    if (name == "count") return list_count;
    if (name == "index") return list_index;
    return is_list && name == "copy" ? copy : nullptr;
  }
  if (object.dict() == nullptr) return nullptr;
  if (name == "get") return dict_get;
  if (name == "items") return dict_items;
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  return name == "copy" ? copy : nullptr;
}

std::optional<Value> method_of(const Value& object, std::string_view name) {
  Function function = nullptr;
  if (object.is_text()) {
    function = text_method(name);
    if (function == nullptr) function = text_question(name);
  } else if (object.is_number()) {
    function = object.real() != nullptr && name == "is_integer" ? is_whole_float : nullptr;
  } else {
    function = container_method(object, name);
  }
  if (function == nullptr) {
    if (!changes_object(object, name)) return std::nullopt;
    return Value::undefined(fmt::format("'{}' of a {} changes it, which templates may not do", name,
                                        object.type_name()));
  }
  return Value(std::make_shared<const Callable>(
      Callable{std::string(name), [function, object](Run& run, const Arguments& arguments) {
                 return function(run, object, arguments);
               }}));
}

}  // namespace moesaic::jinja
