#include "src/jinja/template.h"

#include "base/error.h"
#include "src/jinja/globals.h"
#include "src/jinja/parser.h"

namespace moesaic::jinja {

struct Template::Parts {
  std::string name;
  ParsedTemplate parsed;
};

namespace {

[[noreturn]] void rethrow(const Error& error, const std::string& name, int line) {
  fail(error.kind(), "{} line {}: {}", name, line, error.what());
}

}  // namespace

Template Template::parse(std::string_view source, std::string name) {
  int line = 1;
  try {
    ParsedTemplate parsed = parse_template(source, line);
    return Template(std::make_shared<const Parts>(Parts{name, std::move(parsed)}));
  } catch (const Error& error) {
    rethrow(error, name, line);
  }
}

Rendered Template::render(const Dict& variables, const Limits& limits) const {
  Run run(limits);
  try {
    assign_globals(run);
    for (const auto& [key, value] : variables.entries()) {
      run.assign(text_of(key, "the name of a variable"), value);
    }
    const Run::InScope scope(run);
    execute_all(parts_->parsed.body, run);
    return {run.take_output(), run.take_generated()};
  } catch (const Error& error) {
    rethrow(error, parts_->name, run.line());
  }
}

bool Template::has_generation() const {
  return parts_->parsed.has_generation;
}

Value value_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_string()) return Value(json.as_string_view());
  if (json.is_integer() || json.is_long_integer()) return Value(json.as_int());  // or an error
  if (json.is_number()) return Value(json.as_double());
  if (json.is_array()) {
    std::vector<Value> items;
    json.for_each([&](const std::string&, const Json& item) { items.push_back(value_of(item)); });
    return make_sequence(std::move(items));
  }
  Dict dict;
  json.for_each(
      [&](const std::string& key, const Json& member) { dict.set(Value(key), value_of(member)); });
  return make_dict(std::move(dict));
}

}  // namespace moesaic::jinja
