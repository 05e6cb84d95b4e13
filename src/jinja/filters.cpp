#include "src/jinja/filters.h"

#include "src/jinja/operators.h"

namespace moesaic::jinja {

Function filter_named(std::string_view name) {
  for (Function (*part)(std::string_view) :
       {text_filter, value_filter, sequence_filter, choosing_filter}) {
    if (Function found = part(name)) return found;
  }
  return nullptr;
}

Value member_at(const Value& value, const Value& path, const Value* fallback) {
  const auto step = [&](const Value& object, const Value& key) {
    Value found = subscript(object, key);
    return fallback != nullptr && found.is_undefined() ? *fallback : found;
  };
  if (path.integer()) return step(value, path);
  std::string_view rest = text_of(path, "an attribute");
  Value found = value;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    found = step(found, is_index ? Value(static_cast<std::int64_t>(std::stoll(std::string(part))))
                                 : Value(part));
    if (part.size() == rest.size()) return found;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace moesaic::jinja
