#include "src/jinja/filters.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/questions.h"
#include "src/jinja/run.h"

namespace moesaic::jinja {
namespace {

/// The arguments behind the first `count` ones.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

/// map(attribute="name", default=...).
Value map_member(const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "map", {"attribute", "default"}, 1);
  const Value* fallback = bound[1] != nullptr && !bound[1]->is_none() ? bound[1] : nullptr;
  std::vector<Value> items;
  for (const Value& item : items_of(input)) {
    items.push_back(member_at(item, *bound[0], fallback));
  }
  return make_sequence(std::move(items), SequenceKind::generator);
}

Value map(Run& run, const Value& input, const Arguments& arguments) {
  if (arguments.positional.empty()) return map_member(input, arguments);
  const std::string& name = text_of(arguments.positional[0], "the name of a filter");
  const Function filter = filter_named(name);
  if (filter == nullptr) refuse("there is no filter named '{}'", name);
  const Run::Deeper deeper(run);
  const Arguments rest = rest_of(arguments, 1);
  std::vector<Value> items;
  for (const Value& item : items_of(input)) {
    run.charge(8);
    items.push_back(run.made(filter(run, item, rest)));
  }
  return make_sequence(std::move(items), SequenceKind::generator);
}

/// select, reject and those that ask about a member.
template <bool wanted, bool by_member>
Value choose(Run& run, const Value& input, const Arguments& arguments) {
  const std::size_t before = by_member ? 1 : 0;
  const auto& given = arguments.positional;
  if (given.size() < before) refuse("Missing parameter for attribute name");
  Function question = nullptr;
  Arguments rest;
  if (given.size() > before) {
    const std::string& name = text_of(given[before], "the name of a test");
    question = question_named(name);
    if (question == nullptr) refuse("there is no test named '{}'", name);
    rest = rest_of(arguments, before + 1);
  }
  std::vector<Value> kept;
  for (const Value& item : items_of(input)) {
    run.charge(8);
    const Value asked = by_member ? member_at(item, given[0]) : item;
    const bool holds = question == nullptr ? asked.truth() : question(run, asked, rest).truth();
    if (holds == wanted) kept.push_back(item);
  }
  return make_sequence(std::move(kept), SequenceKind::generator);
}

constexpr NamedFunction kChoosers[] = {
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
};

}  // namespace

Function choosing_filter(std::string_view name) {
  return look_up(kChoosers, name);
}

}  // namespace moesaic::jinja
