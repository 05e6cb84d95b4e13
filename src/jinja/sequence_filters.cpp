#include <algorithm>

#include "src/jinja/filters.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"
#include "src/jinja/run.h"
#include "src/jinja/text_functions.h"
#include "src/tokenizer/unicode.h"

namespace moesaic::jinja {
namespace {

/// What values are compared by: a member, texts in lower case unless case counts.
Value sort_key(const Value& value, const Value* path, bool case_counts) {
  Value key = path == nullptr || path->is_none() ? value : member_at(value, *path);
  return key.is_text() && !case_counts ? Value(lowercase(*key.text())) : key;
}

bool truth_of(const Value* argument) {
  return argument != nullptr && argument->truth();
}

/// `items` in the order of `keys`; equal ones stay as they are.
std::vector<Value> in_order(const std::vector<Value>& items, const std::vector<Value>& keys,
                            bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  for (const std::size_t at : order) sorted.push_back(items[at]);
  return sorted;
}

/// The members that sort() compares, as in "role,name"; None for the whole values.
std::vector<Value> sort_paths(const Value* attribute) {
  if (attribute == nullptr) return {Value()};
  if (!attribute->is_text()) return {*attribute};
  return split_text(*attribute->text(), ",", -1, false);
}

Value sort(Run& run, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = items_of(input);
  const std::vector<Value> paths = sort_paths(bound[2]);
  run.charge(items.size() * paths.size() * sizeof(Value));
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& path : paths) parts.push_back(sort_key(item, &path, truth_of(bound[1])));
    keys.push_back(make_sequence(std::move(parts)));
  }
  return make_sequence(in_order(items, keys, truth_of(bound[0])));
}

Value dictsort(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (input.dict() == nullptr) refuse("dictsort needs a mapping, not '{}'", input.type_name());
  const std::string by = bound[1] == nullptr ? "key" : to_text(*bound[1]);
  if (by != "key" && by != "value") refuse("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    items.push_back(make_sequence({key, value}, SequenceKind::tuple));
    keys.push_back(sort_key(by == "key" ? key : value, nullptr, truth_of(bound[0])));
  }
  return make_sequence(in_order(items, keys, truth_of(bound[2])));
}

template <bool largest>
Value extreme(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Value> items = items_of(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Value* best = &items[0];
  Value best_key = sort_key(items[0], bound[1], truth_of(bound[0]));
  for (const Value& item : items) {
    Value key = sort_key(item, bound[1], truth_of(bound[0]));
    if (largest ? less(best_key, key) : less(key, best_key)) {
      best = &item;
      best_key = std::move(key);
    }
  }
  return *best;
}

Value unique(Run& run, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> kept;
  Dict seen;
  for (const Value& item : items_of(input)) {
    const Value key = sort_key(item, bound[1], truth_of(bound[0]));
    if (!key.is_text()) run.charge(8 * seen.entries().size());  // these are found one by one
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value(true));
    kept.push_back(item);
  }
  return make_sequence(std::move(kept), SequenceKind::generator);
}

Value sum(Run& run, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "sum", {"attribute", "start"});
  Value total = bound[1] == nullptr ? Value(std::int64_t{0}) : *bound[1];
  if (total.is_text()) refuse("sum() can't sum strings");
  for (const Value& item : items_of(input)) {
    const bool whole = bound[0] == nullptr || bound[0]->is_none();
    total = run.made(compute(Operation::add, total, whole ? item : member_at(item, *bound[0])));
  }
  return total;
}

Value list(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "list", {});
  return make_sequence(items_of(input));
}

Value first(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "first", {});
  const Sequence* sequence = input.sequence();
  if (sequence != nullptr && sequence->taken < sequence->items.size()) {
    const Value& item = sequence->items[sequence->taken];
    if (sequence->kind == SequenceKind::generator) ++sequence->taken;
    return item;
  }
  std::vector<Value> items = items_of(input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items[0];
}

void need_reversible(const Value& value) {
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->kind == SequenceKind::generator) {
    refuse("'generator' object is not reversible");
  }
}

Value last(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "last", {});
  need_reversible(input);
  std::vector<Value> items = items_of(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "reverse", {});
  std::vector<Value> items = items_of(input);
  std::reverse(items.begin(), items.end());
  if (!input.is_text()) return make_sequence(std::move(items), SequenceKind::generator);
  std::string text;
  for (const Value& item : items) text += *item.text();
  return Value(std::move(text));
}

Value join(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "join", {"d", "attribute"});
  const std::string separator = bound[0] == nullptr ? "" : to_text(*bound[0]);
  std::string out;
  bool is_first = true;
  for (const Value& item : items_of(input)) {
    if (!is_first) out += separator;
    is_first = false;
    const bool whole = bound[1] == nullptr || bound[1]->is_none();
    out += to_text(whole ? item : member_at(item, *bound[1]));
    if (out.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
  }
  return Value(std::move(out));
}

Value batch(Run& run, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "batch", {"linecount", "fill_with"}, 1);
  const std::int64_t size = integer_of(*bound[0], "linecount");
  if (size < 1 || size > (1 << 20)) refuse("linecount is out of range");
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items_of(input)) {
    if (std::ssize(row) == size) rows.push_back(make_sequence(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      run.charge(static_cast<std::size_t>(size) * sizeof(Value));
      row.resize(static_cast<std::size_t>(size), *bound[1]);
    }
    rows.push_back(make_sequence(std::move(row)));
  }
  return make_sequence(std::move(rows), SequenceKind::generator);
}

constexpr NamedFunction kFilters[] = {
    {"sort", sort},     {"dictsort", dictsort}, {"max", extreme<true>}, {"min", extreme<false>},
    {"unique", unique}, {"sum", sum},           {"list", list},         {"first", first},
    {"last", last},     {"reverse", reverse},   {"join", join},         {"batch", batch},
};

}  // namespace

Function sequence_filter(std::string_view name) {
  return look_up(kFilters, name);
}

}  // namespace moesaic::jinja
